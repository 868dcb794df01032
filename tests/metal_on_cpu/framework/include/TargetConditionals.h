// Sources written for macOS take their macOS branch.
#pragma once

#define TARGET_OS_MAC 1
#define TARGET_OS_OSX 1
#define TARGET_OS_IPHONE 0
#define TARGET_OS_IOS 0
#ifndef TARGET_OS_SIMULATOR  // a test may be one
#define TARGET_OS_SIMULATOR 0
#endif

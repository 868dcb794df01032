// ThreadSanitizer has a thread of its own, and loses count of the threads that a forked child starts ("dup thread").
#pragma once

#include <gtest/gtest.h>

#if defined(__SANITIZE_THREAD__)
#define MARLIN_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MARLIN_UNDER_TSAN 1
#endif
#endif

#if defined(MARLIN_UNDER_TSAN)
#define SKIP_UNDER_TSAN() GTEST_SKIP() << "ThreadSanitizer follows neither forked children nor the number of threads"
#else
#define SKIP_UNDER_TSAN() static_cast<void>(0)
#endif

// Skips tests that a sanitizer's runtime cannot follow.
#pragma once

#include <gtest/gtest.h>

#if defined(__SANITIZE_THREAD__)
#define MARLIN_UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define MARLIN_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MARLIN_UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define MARLIN_UNDER_ASAN 1
#endif
#endif

/// ThreadSanitizer has a thread of its own, and it miscounts the threads that a forked child starts ("dup thread").
#if defined(MARLIN_UNDER_TSAN)
#define SKIP_UNDER_TSAN() GTEST_SKIP() << "ThreadSanitizer follows neither forked children nor the number of threads"
#else
#define SKIP_UNDER_TSAN() static_cast<void>(0)
#endif

/// For tests that fork while another thread allocates memory. GCC 12's AddressSanitizer does not release the locks of
/// its allocator in the child, so the child waits forever for a lock that the other thread held; glibc's malloc does.
#if defined(MARLIN_UNDER_ASAN)
#define SKIP_UNDER_ASAN() GTEST_SKIP() << "a fork may leave a lock of AddressSanitizer's allocator closed in the child"
#else
#define SKIP_UNDER_ASAN() static_cast<void>(0)
#endif

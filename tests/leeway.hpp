/// The factor by which a test lets something take longer than promised. The machine may be busy,
/// and sanitized programs are slower.
#pragma once

#if defined(__has_feature)  // clang tells of sanitizers only so
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TROUPE_TESTS_ARE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(TROUPE_TESTS_ARE_SANITIZED)
inline constexpr int kLeeway = 8;
#else
inline constexpr int kLeeway = 2;
#endif

/// How many times longer than promised a test lets something take: the machine may do other things
/// besides, and sanitized programs are slower.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kLeeway = 8;
#else
inline constexpr int kLeeway = 2;
#endif

/// The factor by which a test lets something take longer than promised. The machine may be busy,
/// and sanitized programs are slower.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kLeeway = 8;
#else
inline constexpr int kLeeway = 2;
#endif

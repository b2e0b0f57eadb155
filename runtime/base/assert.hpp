/// TROUPE_ASSERT: stops the process where a broken invariant is detected.
///
///     TROUPE_ASSERT(used <= capacity, "ring overran its buffer");
///
/// It is on in every build: the checks are cheap, and a wrong result is worse than a dead process.
/// A hook lets the simulator print its seed before the abort.
#pragma once

#if defined(__GNUC__)
#define TROUPE_API __attribute__((visibility("default")))
#else
#define TROUPE_API
#endif

namespace troupe {

/// Called with the failed expression before the process aborts; set by the simulator. Not
/// thread-safe to set.
using AssertHook = void (*)();
TROUPE_API void set_assert_hook(AssertHook hook) noexcept;

/// Prints `file:line: broken invariant: expression: why`, calls the hook, aborts.
[[noreturn]] TROUPE_API void assert_failed(const char* expression, const char* why,
                                           const char* file, int line) noexcept;

}  // namespace troupe

#define TROUPE_ASSERT(condition, why)                \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::troupe::assert_failed(#condition, why, __FILE__, __LINE__))

#include "troupe/runtime/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace troupe {
namespace {
AssertHook g_hook = nullptr;
}

void set_assert_hook(AssertHook hook) noexcept {
  g_hook = hook;
}

void assert_failed(const char* expression, const char* why, const char* file, int line) noexcept {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line, expression, why);
  if (g_hook != nullptr) g_hook();
  std::abort();
}

}  // namespace troupe

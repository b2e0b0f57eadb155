#include "troupe/runtime/base/assert.hpp"

#include "troupe/runtime/base/log.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace troupe {
namespace {
AssertHook g_hook = nullptr;
}

void set_assert_hook(AssertHook hook) noexcept {
  g_hook = hook;
}

void assert_failed(const char* expression, const char* why, const char* file, int line) noexcept {
  char words[1024];
  std::snprintf(words, sizeof words - 1, "%s:%d: broken invariant: %s: %s", file, line, expression,
                why);
  log_last_words(std::strcat(words, "\n"));
  if (g_hook != nullptr) g_hook();
  std::abort();
}

}  // namespace troupe

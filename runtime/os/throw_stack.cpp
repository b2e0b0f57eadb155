#include "troupe/runtime/os/throw_stack.hpp"

#include "troupe/runtime/base/error.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kMaxFrames = 32;
// The initial-exec model makes access to these cheap: it needs no call into the loader, and every
// task uses t_noting.
[[gnu::tls_model("initial-exec")]] thread_local int t_noting = 0;
[[gnu::tls_model("initial-exec")]] thread_local int t_count = 0;
thread_local void* t_frames[kMaxFrames];

}  // namespace

/// Replaces __cxa_throw, the C++ runtime's entry for `throw`. The program's calls reach this one
/// first, because this library is before the C++ library in the search order. It records the stack
/// and calls the C++ library's function. The declaration has another name, because compilers
/// declare __cxa_throw themselves, with differing types.
extern "C" __attribute__((visibility("default"), noreturn)) void troupe_note_throw(
    void* object, void* type, void (*destroy)(void*)) __asm__("__cxa_throw");

void troupe_note_throw(void* object, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto real = reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"));
  if (t_noting > 0) t_count = backtrace(t_frames, kMaxFrames);
  real(object, type, destroy);
  std::abort();  // never reached
}

namespace troupe::os {

NoteThrows::NoteThrows() noexcept {
  if (t_noting++ == 0) t_count = 0;
}
NoteThrows::~NoteThrows() {
  --t_noting;
}

std::string thrown_stack() {
  std::string text;
  for (int i = 1; i < t_count && text.size() < 3500; ++i) {  // frame 0 is __cxa_throw itself
    Dl_info info{};
    if (dladdr(t_frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    char place[32];
    std::snprintf(place, sizeof place, "+0x%zx)\n",
                  reinterpret_cast<std::uintptr_t>(t_frames[i]) -
                      reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    const std::string name = info.dli_sname != nullptr ? readable_type(info.dli_sname) : "?";
    const std::string module = info.dli_fname;
    text += "    " + name + " (" + module.substr(module.rfind('/') + 1) + place;
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace troupe::os

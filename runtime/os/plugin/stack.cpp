// Finds function, file and line of addresses with libdw. A module of its own, opened by the
// process that looks lines up, so that no other process loads libdw.
#include "troupe/runtime/os/internal/stack_door.hpp"

#include <elfutils/libdwfl.h>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

using troupe::os::internal::StackPlace;

/// The default folders of separate debug information.
char* g_debug_folders = nullptr;

/// A module, opened without its process.
class Opened {
 public:
  explicit Opened(const char* path) : dwfl_(dwfl_begin(&kCallbacks)) {
    if (dwfl_ == nullptr) return;
    module_ = dwfl_report_offline(dwfl_, path, path, -1);
    if (dwfl_report_end(dwfl_, nullptr, nullptr) != 0) module_ = nullptr;
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (dwfl_ != nullptr) dwfl_end(dwfl_);
  }
  Dwfl_Module* module() const noexcept { return module_; }

 private:
  static constexpr Dwfl_Callbacks kCallbacks{
      .find_elf = dwfl_build_id_find_elf,
      .find_debuginfo = dwfl_standard_find_debuginfo,
      .section_address = dwfl_offline_section_address,
      .debuginfo_path = &g_debug_folders,
  };
  Dwfl* dwfl_;
  Dwfl_Module* module_ = nullptr;
};

bool has_build_id(Dwfl_Module* module, std::string_view wanted) {
  const unsigned char* bits = nullptr;
  GElf_Addr address = 0;
  GElf_Addr bias = 0;
  if (dwfl_module_getelf(module, &bias) == nullptr) return false;
  const int size = dwfl_module_build_id(module, &bits, &address);
  std::string id;
  for (int i = 0; i < size; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bits[i]);
    id += digits;
  }
  return !id.empty() && id == wanted;
}

void look_up(const char* path, const char* build_id, const std::uint64_t* addresses,
             std::size_t count,
             void (*report)(void* to, std::size_t index, const StackPlace& place), void* to) {
  const Opened opened(path);
  Dwfl_Module* const module = opened.module();
  if (module == nullptr || !has_build_id(module, build_id)) return;
  GElf_Addr bias = 0;
  if (dwfl_module_getelf(module, &bias) == nullptr) return;
  for (std::size_t i = 0; i < count; ++i) {
    const GElf_Addr address = addresses[i] + bias;
    StackPlace place{dwfl_module_addrname(module, address), nullptr, 0};
    if (Dwfl_Line* const line = dwfl_module_getsrc(module, address); line != nullptr)
      place.file = dwfl_lineinfo(line, nullptr, &place.line, nullptr, nullptr, nullptr);
    report(to, i, place);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) troupe::os::internal::StackDoor
troupe_stack_door() {
  return look_up;
}

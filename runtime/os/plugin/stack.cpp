// Finds function, file and line of addresses with libdw. A module of its own, opened by the
// process that looks lines up, so that no other process loads libdw.
#include "troupe/runtime/os/internal/stack_door.hpp"

#include <elfutils/libdwfl.h>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

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

// --- processes that live

using troupe::os::internal::LiveFrame;

struct Walk {
  Dwfl* dwfl;
  void (*report)(void* to, const LiveFrame& frame);
  void* to;
  int number = 0;
  std::string why;
};

constexpr int kMostFrames = 64;  // of a thread

int on_frame(Dwfl_Frame* state, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(state, &pc, &is_activation)) return DWARF_CB_ABORT;
  // The address behind a call may be of the next line.
  const Dwarf_Addr inside = is_activation ? pc : pc - 1;
  LiveFrame frame{};
  frame.thread = dwfl_thread_tid(dwfl_frame_thread(state));
  frame.number = walk.number;
  frame.offset = pc;
  if (Dwfl_Module* const module = dwfl_addrmodule(walk.dwfl, inside); module != nullptr) {
    Dwarf_Addr begin = 0;
    frame.module =
        dwfl_module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
    frame.offset = pc - begin;
    frame.place.function = dwfl_module_addrname(module, inside);
    if (Dwfl_Line* const line = dwfl_module_getsrc(module, inside); line != nullptr)
      frame.place.file = dwfl_lineinfo(line, nullptr, &frame.place.line, nullptr, nullptr, nullptr);
  }
  walk.report(walk.to, frame);
  return ++walk.number < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

int on_thread(Dwfl_Thread* thread, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  walk.number = 0;
  if (dwfl_thread_getframes(thread, on_frame, &walk) < 0 && walk.number == 0) {
    const char* const why = dwfl_errmsg(-1);
    walk.why = why != nullptr ? why : "a thread has no stack";
  }
  return DWARF_CB_OK;
}

const char* walk_process(int pid, void (*report)(void* to, const LiveFrame& frame), void* to) {
  static constexpr Dwfl_Callbacks kOfProcess{
      .find_elf = dwfl_linux_proc_find_elf,
      .find_debuginfo = dwfl_standard_find_debuginfo,
      .section_address = nullptr,
      .debuginfo_path = &g_debug_folders,
  };
  static std::string why;
  const auto failed = [](int error) {
    why = error > 0 ? std::strerror(error) : dwfl_errmsg(-1);
    return why.c_str();
  };
  Dwfl* const dwfl = dwfl_begin(&kOfProcess);
  if (dwfl == nullptr) return failed(-1);
  Walk walk{dwfl, report, to, 0, {}};
  if (const int error = dwfl_linux_proc_report(dwfl, pid); error != 0) return failed(error);
  if (dwfl_report_end(dwfl, nullptr, nullptr) != 0) return failed(-1);
  if (const int error = dwfl_linux_proc_attach(dwfl, pid, false); error != 0) return failed(error);
  if (dwfl_getthreads(dwfl, on_thread, &walk) != DWARF_CB_OK && walk.why.empty())
    walk.why = dwfl_errmsg(-1);
  dwfl_end(dwfl);
  why = std::move(walk.why);
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) troupe::os::internal::StackDoor
troupe_stack_door() {
  return look_up;
}

extern "C" __attribute__((visibility("default"))) troupe::os::internal::LiveDoor
troupe_live_stack_door() {
  return walk_process;
}

/// The one entry of libtroupe_stack.so, which knows libdw. It runs in a process of its own, since
/// debug information may be huge or corrupt.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::os::internal {

inline constexpr const char* kStackPlugin = "libtroupe_stack.so";
inline constexpr const char* kStackDoor = "troupe_stack_door";
inline constexpr const char* kLiveDoor = "troupe_live_stack_door";

/// The place of one address; the texts live until the call returns.
struct StackPlace {
  const char* function;  ///< mangled; null: unknown
  const char* file;      ///< null: unknown
  int line;
};

/// Looks `count` addresses of one module up and reports each place. Does nothing if the file's
/// build-id (hexadecimal) is another one.
using StackDoor = void (*)(const char* path, const char* build_id, const std::uint64_t* addresses,
                           std::size_t count,
                           void (*report)(void* to, std::size_t index, const StackPlace& place),
                           void* to);

/// A frame of a process that lives. The texts live until the call returns.
struct LiveFrame {
  int thread;
  int number;            ///< 0: the innermost
  const char* module;    ///< path; null: unknown
  std::uint64_t offset;  ///< in the module
  StackPlace place;
};

/// Stops the threads of a process one after the other, reports their frames, and lets them go on.
/// Returns null, or why some threads are missing; that text lives until the next call.
using LiveDoor = const char* (*)(int pid, void (*report)(void* to, const LiveFrame& frame),
                                 void* to);

}  // namespace troupe::os::internal

/// Function, file and line of the frames of a crash, for a person.
///
///     StackLines lines;
///     for (const StackLine& line : lines.look_up(report.frames)) print(text_of(line));
#pragma once

#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/os/crash_record.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::os {

struct StackLine {
  CrashFrame frame;
  std::string function;  ///< readable; empty: unknown
  std::string file;      ///< empty: unknown
  int line = 0;
};

/// Keeps what it has found, and what it has not. One thread at a time.
class StackLines {
 public:
  /// How the child begins. A process with threads, or with much memory, uses the role `stack`
  /// (stack_role.hpp), which the program that loads this library must know.
  enum class By { fork, role };

  explicit StackLines(By by = By::fork) noexcept : by_(by) {}

  static constexpr Duration kLimit = std::chrono::seconds(2);
  static constexpr std::size_t kMaxKept = 4096;  ///< frames

  /// Returns a line for each frame, in order. Frames without a build-id, and those that are not
  /// found in time, have no function and no file. A frame is looked up once. Blocks for at most `limit`: a child of this
  /// process opens libtroupe_stack.so and reads the debug information of this host, and is killed
  /// after that time. Never fails: a missing plug-in means missing lines.
  std::vector<StackLine> look_up(std::span<const CrashFrame> frames, Duration limit = kLimit);

 private:
  using Key = std::pair<std::string, std::uint64_t>;  // build-id, address
  struct Place {
    std::string function, file;
    int line = 0;
  };
  By by_;
  std::map<Key, Place> places_;
};

/// Returns "mix(int) at mix.cpp:12 (libmix.so+0x1234)". No control character passes.
std::string text_of(const StackLine& line);

}  // namespace troupe::os

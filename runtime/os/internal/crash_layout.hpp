/// The bytes of a crash record. Writer and reader may be of different builds of one protocol.
#pragma once

#include "troupe/runtime/os/crash_record.hpp"

#include <cstdint>
#include <type_traits>

namespace troupe::os::internal {

inline constexpr std::uint32_t kCrashMagic = 0x48535243;  // "CRSH"
enum class CrashStage : std::uint32_t { none = 0, begun = 1, whole = 2 };

struct CrashHead {
  std::uint32_t magic;
  std::uint32_t stage;  ///< a CrashStage; written last
  std::int32_t signal;
  std::uint32_t sent;  ///< 1: by a process, whose pid is `address`
  std::uint64_t address;
  std::int32_t pid, thread;
  char name[16];
  std::uint32_t frames;
  std::uint32_t map_bytes;  ///< of the executable lines of /proc/self/maps, behind this head
  std::uint64_t at[kMaxCrashFrames];  ///< the first one is the instruction, the others return there
};
static_assert(std::is_trivially_copyable_v<CrashHead> && sizeof(CrashHead) % 8 == 0);
inline constexpr std::size_t kMaxMapBytes = kCrashBytes - sizeof(CrashHead);

}  // namespace troupe::os::internal

/// One page of memory that the chaos program shares with its preloaded library (shim.cpp) in
/// agents and control. It is a file that both map.
///
///     Page* page = map_page(path, true);        // the chaos program
///     page->proxy_port = 40001;                 // from now on, connections go to the proxy
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>

namespace chaos {

inline constexpr const char* kPageVariable = "CHAOS_PAGE";
inline constexpr std::uint32_t kMagic = 0x74724331;
inline constexpr int kMostListeners = 4096;

/// The process that listens on a port. Entries are in the order of listen().
struct Listener {
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> port;
};

struct Page {
  std::atomic<std::int64_t> clock_offset_ns;  ///< of the wall clock
  std::atomic<std::uint64_t> clock_reads;     ///< reads while the offset was not 0
  std::atomic<std::int64_t> slept_ns;         ///< sleep so far, by CLOCK_BOOTTIME; never shrinks
  std::atomic<std::uint64_t> sleep_reads;     ///< reads while slept_ns was not 0
  std::atomic<std::uint32_t> proxy_port;      ///< 0: connect directly
  std::atomic<std::uint32_t> hole_port;       ///< connections to it never complete
  std::atomic<std::int32_t> calls;            ///< that CHAOS_CALL describes, so far (shim.cpp)
  std::atomic<std::int32_t> stopped;          ///< the process that one of them has stopped; 0: none
  std::atomic<std::uint32_t> go;              ///< for tests: the processes that wait for it go on
  std::atomic<std::uint32_t> listeners;
  Listener listener[kMostListeners];
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// The first bytes of a connection to the proxy, which answers one byte.
struct Greeting {
  std::uint32_t magic = kMagic;
  std::int32_t pid = 0;
  std::uint32_t port = 0;
};
enum class Verdict : char { connected = 'C', refused = 'R', hole = 'H' };

/// Maps the page. Returns null on failure.
inline Page* map_page(const char* path, bool create) {
  const int fd = ::open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (!create || ::ftruncate(fd, sizeof(Page)) == 0)
    memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Page*>(memory);
}

}  // namespace chaos

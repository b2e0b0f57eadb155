/// A TCP proxy between the processes of a cluster. It knows the processes at both ends of a
/// connection, and can hold, delay and cut it. The preloaded library (shim.cpp) leads connections
/// here.
///
///     Proxy proxy(page);                       // a thread of its own
///     proxy.hold(agent, true);                 // a partition: bytes wait, connections hang
///     proxy.hold(agent, false);                // healed: everything that waited arrives
///     proxy.effect();                          // chunks and connections held, delayed or cut
#pragma once

#include "tests/chaos/page.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace chaos {

class Proxy {
 public:
  explicit Proxy(Page& page);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// Holds all bytes from and to a process, or only those from it.
  void hold(int pid, bool on, bool only_out = false);
  /// Holds all bytes between two processes.
  void hold_between(int a, int b, bool on);
  void delay(int pid, int milliseconds);
  /// Resets every connection of a process.
  void cut(int pid);
  /// Ends all holds and delays.
  void heal();
  /// Returns a number that grows with each chunk of bytes or connection that was held, delayed or
  /// cut.
  std::uint64_t effect() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaos

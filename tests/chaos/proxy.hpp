/// A TCP proxy between the processes of a cluster that knows who talks to whom, and can hold back,
/// delay and cut it. Connections come from the preloaded library (shim.cpp).
///
///     Proxy proxy(page);                       // a thread of its own
///     proxy.hold(agent, true);                 // a partition: bytes wait, connections hang
///     proxy.hold(agent, false);                // healed: everything that waited arrives
///     proxy.effect();                          // how much was held, delayed, cut by now
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

  /// All that this process sends or is sent, or only what it sends.
  void hold(int pid, bool on, bool only_out = false);
  /// All between these two.
  void hold_between(int a, int b, bool on);
  void delay(int pid, int milliseconds);
  /// Resets every connection of this process.
  void cut(int pid);
  /// Nothing is held or delayed any more.
  void heal();
  /// Grows with every chunk of bytes or connection that was held, delayed or cut.
  std::uint64_t effect() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaos

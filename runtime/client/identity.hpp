/// Who this process is: what the agent's welcome says of it, and the number of its engine. Serves
/// ClientEngine, which fills it in, and its parts.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace troupe::client {

struct Identity {
  wire::ProcessKind kind = wire::ProcessKind::driver;
  ProcessIndex process;
  JobId job;
  NodeId node;
  std::string node_name;
  /// Number of the engine in this process, from 1: a session that follows another has the next.
  const std::uint64_t engine = next_engine();

 private:
  static std::uint64_t next_engine() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
};

}  // namespace troupe::client

/// Delays CreateActor messages with a name until earlier releases of handles have been settled. The
/// name may be that of an actor whose last handle was just released, and control must get that
/// actor's HandlesGone first. A plain state machine.
///
///     spawns.add(process, std::move(message), payload, job, near);
///     references.settle();
///     for (auto& spawn : spawns.settled()) actors.create(...);   // after each settle()
///
/// An object is free when two settle() in a row have found it without a holder.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace troupe::agent {

class NamedSpawns {
 public:
  struct Spawn {
    ProcessIndex process;  ///< may have ended meanwhile
    wire::CreateActor message;
    Blob payload;
    JobId job;
    std::vector<std::pair<NodeId, std::uint64_t>> near;
    std::uint64_t due = 0;  ///< set by add(): the settlement after which it is returned
  };
  void add(Spawn spawn) {
    spawn.due = settlements_ + kPasses;
    waiting_.push_back(std::move(spawn));
  }
  bool pending() const noexcept { return !waiting_.empty(); }
  /// Counts one ReferenceTable::settle() and returns the spawns that are due, in order.
  std::vector<Spawn> settled() {
    ++settlements_;
    std::vector<Spawn> due;
    while (!waiting_.empty() && waiting_.front().due <= settlements_) {
      due.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return due;
  }

 private:
  /// Two settlements free an object, and one more frees an object that its value named.
  static constexpr std::uint64_t kPasses = 3;
  std::uint64_t settlements_ = 0;
  std::deque<Spawn> waiting_;
};

}  // namespace troupe::agent

/// Spawns with a name, put off until all that was let go before them has been settled: the name may
/// be that of an actor whose last handle has just gone, and control is to hear of that first. A
/// plain state machine.
///
///     spawns.add(process, std::move(message), payload, job, near);
///     for (auto& spawn : spawns.settled()) actors.create(...);   // after each
///     ReferenceTable::settle()
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
    std::uint64_t process = 0;  ///< may have ended meanwhile
    wire::CreateActor message;
    Blob payload;
    JobId job;
    std::vector<std::pair<NodeId, std::uint64_t>> near;
    std::uint64_t due = 0;  ///< settlements
  };
  void add(Spawn spawn) {
    spawn.due = settlements_ + kPasses;
    waiting_.push_back(std::move(spawn));
  }
  bool pending() const noexcept { return !waiting_.empty(); }
  /// In order. The owner table has settled once more.
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
  static constexpr std::uint64_t kPasses = 3;  ///< one more: a release may free what names another
  std::uint64_t settlements_ = 0;
  std::deque<Spawn> waiting_;
};

}  // namespace troupe::agent

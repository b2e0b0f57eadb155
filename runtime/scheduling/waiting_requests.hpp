/// The waiting requests of a LeaseTable: by key, and in lines in which the next one to serve is
/// found without a look at the others. A plain container.
///
///     waiting.put({owner, key}, demand, 3, kind, Reach::here, now);
///     for (const auto& [group, lines] : waiting.groups()) lines.here.first(free);
///     waiting.served(request, now);          // one lease less; it goes to the end of its line
///
/// Invariant: turns and times of waiting grow together, since both are renewed at once.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/scheduling/waiting_line.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace troupe::scheduling {

/// Properties of a request besides its demand.
struct RequestKind {
  bool spilled = false;  ///< came from another agent: never passed on again
  /// For an actor: it gets its own worker, outside max_workers, which ends with the lease.
  bool dedicated = false;
  JobNumber job;  ///< only workers of this job serve it
  /// With `spilled`: the other agent knows no faster node that takes it.
  bool no_faster = false;
  /// Whether this node was chosen already, by another agent or by control: no other node is
  /// considered.
  bool is_for_here() const noexcept { return spilled || dedicated; }
};

/// The nodes that could take a demand when they are empty.
enum class Reach : std::uint8_t {
  here,    ///< this node, and perhaps others
  away,    ///< only others
  nowhere  ///< none
};

using RequestKey = std::pair<ProcessIndex, LeaseKey>;

struct WaitingRequest {
  RequestKey key;
  ResourceDemand demand;
  std::uint32_t count = 0;
  std::uint64_t turn = 0;  ///< place in the queue; renewed with each grant
  Time since{};            ///< when its oldest ungranted lease was asked for
  RequestKind kind;
  Reach reach = Reach::here;
};

class WaitingRequests {
 public:
  using Line = WaitingLine<WaitingRequest>;
  /// Requests that the same workers serve: those of a job, for tasks or for actors.
  struct Group {
    JobNumber job;
    bool dedicated = false;
    friend auto operator<=>(const Group&, const Group&) = default;
  };
  struct Lines {
    Line here, away, nowhere;
    std::uint64_t wanted = 0;  ///< leases that its requests ask for
  };

  /// Adds a request at the end of its line, or changes the one of this key. That one keeps its
  /// place if it stays in its line.
  /// Precondition: the demand is normalized.
  WaitingRequest& put(const RequestKey& key, ResourceDemand demand, std::uint32_t count,
                      RequestKind kind, Reach reach, Time now);
  void erase(const RequestKey& key);
  /// One lease of the request was served. The request goes to the end of its line, or is erased
  /// when that was its last.
  void served(WaitingRequest& request, Time now);
  /// Sorts the requests anew after the nodes have changed. O(requests).
  template <class F>
  void sort(F reach_of) {
    bool changed = false;
    for (auto& [key, request] : requests_) {
      const Reach before = std::exchange(request.reach, reach_of(request));
      changed |= request.reach != before;
    }
    if (changed) line_up();
  }
  /// Forgets groups without requests when there are many groups. A few are kept, since most come
  /// again. Ends references to the groups' lines.
  void tidy() {
    if (groups_.size() > kKeptGroups) forget_empty_groups();
  }

  WaitingRequest* find(const RequestKey& key);
  const WaitingRequest* find(const RequestKey& key) const;
  const std::map<RequestKey, WaitingRequest>& all() const noexcept { return requests_; }
  const std::map<Group, Lines>& groups() const noexcept { return groups_; }
  /// Returns the number of leases that the group's requests ask for.
  std::uint64_t wanted(JobNumber job, bool dedicated) const;
  std::uint64_t wanted() const noexcept { return wanted_; }
  bool empty() const noexcept { return requests_.empty(); }

 private:
  static constexpr std::size_t kKeptGroups = 8;
  void forget_empty_groups();
  static Line& line_of(const WaitingRequest& request, Lines& lines);
  void enter(WaitingRequest& request);
  void leave(WaitingRequest& request);
  void line_up();

  using Requests = std::map<RequestKey, WaitingRequest>;
  void erase(Requests::iterator at);

  Requests requests_;
  Requests::node_type spare_;  ///< of the last request that was erased
  std::map<Group, Lines> groups_;
  std::uint64_t next_turn_ = 1;
  std::uint64_t wanted_ = 0;
};

inline Need need_of(const Resources& resources) {
  return {resources.cpus, resources.gpus, resources.memory};
}
/// Returns whether the demand takes no resource from anybody.
bool takes_nothing(const ResourceDemand& demand);

}  // namespace troupe::scheduling

#include "troupe/runtime/scheduling/waiting_requests.hpp"

#include <algorithm>
#include <vector>

namespace troupe::scheduling {
namespace {

Need need_of(const ResourceDemand& demand) {
  return {demand.need.cpus, demand.need.gpus, demand.need.memory};
}

}  // namespace

bool takes_nothing(const ResourceDemand& demand) {
  const Resources& need = demand.need;
  return need.cpus == 0 && need.gpus == 0 && need.memory == 0 &&
         std::all_of(need.custom.begin(), need.custom.end(),
                     [](const auto& one) { return one.second == 0; });
}

WaitingRequests::Line& WaitingRequests::line_of(const WaitingRequest& request) {
  Lines& lines = groups_[{request.kind.job, request.kind.dedicated}];
  switch (request.reach) {
    case Reach::here: return lines.here;
    case Reach::away: return lines.away;
    case Reach::nowhere: break;
  }
  return lines.nowhere;
}

void WaitingRequests::enter(WaitingRequest& request) {
  line_of(request).add(request, request.turn, need_of(request.demand));
  groups_.at({request.kind.job, request.kind.dedicated}).wanted += request.count;
  wanted_ += request.count;
}

void WaitingRequests::leave(WaitingRequest& request) {
  line_of(request).erase(request.turn);
  groups_.at({request.kind.job, request.kind.dedicated}).wanted -= request.count;
  wanted_ -= request.count;
}

WaitingRequest& WaitingRequests::put(const RequestKey& key, ResourceDemand demand,
                                     std::uint32_t count, RequestKind kind, Reach reach, Time now) {
  const auto [at, is_new] = requests_.try_emplace(key);
  WaitingRequest& request = at->second;
  const bool stays = !is_new && request.kind.job == kind.job &&
                     request.kind.dedicated == kind.dedicated && request.reach == reach;
  if (stays) {
    Lines& lines = groups_.at({kind.job, kind.dedicated});
    lines.wanted += std::uint64_t{count} - request.count;
    wanted_ += std::uint64_t{count} - request.count;
  } else if (!is_new) {
    leave(request);
  }
  request.key = key;
  request.demand = std::move(demand);
  request.count = count;
  request.kind = kind;
  request.reach = reach;
  if (stays) {
    line_of(request).change(request.turn, need_of(request.demand));
    return request;
  }
  request.turn = next_turn_++;
  request.since = now;
  enter(request);
  return request;
}

void WaitingRequests::erase(const RequestKey& key) {
  const auto at = requests_.find(key);
  if (at == requests_.end()) return;
  leave(at->second);
  requests_.erase(at);
}

void WaitingRequests::served(WaitingRequest& request, Time now) {
  leave(request);
  if (--request.count == 0) {
    requests_.erase(RequestKey(request.key));
    return;
  }
  request.turn = next_turn_++;
  request.since = now;
  enter(request);
}

/// Fills all lines anew, in the order of turns.
void WaitingRequests::line_up() {
  std::vector<WaitingRequest*> all;
  all.reserve(requests_.size());
  for (auto& [key, request] : requests_) all.push_back(&request);
  std::sort(all.begin(), all.end(),
            [](const WaitingRequest* a, const WaitingRequest* b) { return a->turn < b->turn; });
  groups_.clear();
  wanted_ = 0;
  for (WaitingRequest* request : all) enter(*request);
}

void WaitingRequests::tidy() {
  std::erase_if(groups_, [](const auto& entry) {
    const Lines& lines = entry.second;
    return lines.here.size() + lines.away.size() + lines.nowhere.size() == 0;
  });
}

WaitingRequest* WaitingRequests::find(const RequestKey& key) {
  const auto at = requests_.find(key);
  return at == requests_.end() ? nullptr : &at->second;
}

const WaitingRequest* WaitingRequests::find(const RequestKey& key) const {
  const auto at = requests_.find(key);
  return at == requests_.end() ? nullptr : &at->second;
}

std::uint64_t WaitingRequests::wanted(JobNumber job, bool dedicated) const {
  const auto at = groups_.find({job, dedicated});
  return at == groups_.end() ? 0 : at->second.wanted;
}

}  // namespace troupe::scheduling

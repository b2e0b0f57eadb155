#include "troupe/runtime/scheduling/waiting_requests.hpp"

#include <algorithm>
#include <vector>

namespace troupe::scheduling {

bool takes_nothing(const ResourceDemand& demand) {
  const Resources& need = demand.need;
  return need.cpus == 0 && need.gpus == 0 && need.memory == 0 &&
         std::all_of(need.custom.begin(), need.custom.end(),
                     [](const auto& one) { return one.second == 0; });
}

WaitingRequests::Line& WaitingRequests::line_of(const WaitingRequest& request, Lines& lines) {
  switch (request.reach) {
    case Reach::here: return lines.here;
    case Reach::away: return lines.away;
    case Reach::nowhere: break;
  }
  return lines.nowhere;
}

void WaitingRequests::enter(WaitingRequest& request) {
  Lines& lines = groups_[{request.kind.job, request.kind.dedicated}];
  line_of(request, lines).add(request, request.turn, need_of(request.demand.need));
  lines.wanted += request.count;
  wanted_ += request.count;
}

void WaitingRequests::leave(WaitingRequest& request) {
  Lines& lines = groups_.at({request.kind.job, request.kind.dedicated});
  line_of(request, lines).erase(request.turn);
  lines.wanted -= request.count;
  wanted_ -= request.count;
}

WaitingRequest& WaitingRequests::put(const RequestKey& key, ResourceDemand demand,
                                     std::uint32_t count, RequestKind kind, Reach reach, Time now) {
  auto at = requests_.lower_bound(key);
  const bool is_new = at == requests_.end() || at->first != key;
  if (is_new && spare_) {
    spare_.key() = key;
    at = requests_.insert(at, std::move(spare_));
  } else if (is_new) {
    at = requests_.try_emplace(at, key);
  }
  WaitingRequest& request = at->second;
  const bool stays = !is_new && request.kind.job == kind.job &&
                     request.kind.dedicated == kind.dedicated && request.reach == reach;
  if (!is_new && !stays) leave(request);
  const std::uint64_t more = std::uint64_t{count} - request.count;  // with `stays`
  request.key = key;
  request.demand = std::move(demand);
  request.count = count;
  request.kind = kind;
  request.reach = reach;
  if (stays) {
    Lines& lines = groups_.at({kind.job, kind.dedicated});
    lines.wanted += more;
    wanted_ += more;
    line_of(request, lines).change(request.turn, need_of(request.demand.need));
    return request;
  }
  request.turn = next_turn_++;
  request.since = now;
  enter(request);
  return request;
}

void WaitingRequests::erase(const RequestKey& key) {
  if (const auto at = requests_.find(key); at != requests_.end()) {
    leave(at->second);
    erase(at);
  }
}

void WaitingRequests::erase(Requests::iterator at) {
  spare_ = requests_.extract(at);
}

void WaitingRequests::served(WaitingRequest& request, Time now) {
  leave(request);
  if (--request.count == 0) return erase(requests_.find(request.key));
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

void WaitingRequests::forget_empty_groups() {
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

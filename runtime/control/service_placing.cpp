// The part of Service that places actors: the view of the nodes' free amounts, the starts that are
// subtracted in it, and the actors that wait for room.
#include "troupe/runtime/control/service.hpp"

#include <algorithm>
#include <utility>

namespace troupe::control {
namespace {

constexpr Duration kPlacingInterval = std::chrono::milliseconds(20);
constexpr Duration kCountInterval = std::chrono::milliseconds(100);

bool same_demand(const scheduling::ResourceDemand& a, const scheduling::ResourceDemand& b) {
  return a.need == b.need && a.labels == b.labels && a.placement == b.placement &&
         a.node == b.node && a.soft == b.soft;
}

/// Returns the free amounts of the node's report, capped by what the node has.
scheduling::NodeView view_of(const NodeDescription& node, const NodeReport& report) {
  scheduling::NodeView view;
  const scheduling::Resources& total = node.resources;
  const scheduling::Resources& free = report.view.free;
  view.id = node.id;
  view.name = node.name;
  view.labels = node.labels;
  view.total = total;
  view.free.cpus = std::min(free.cpus, total.cpus);
  view.free.gpus = std::min(free.gpus, total.gpus);
  view.free.memory = std::min(free.memory, total.memory);
  for (const auto& [name, amount] : total.custom)
    view.free.custom.emplace_back(name, std::min(amount, free.custom_amount(name)));
  view.gpu_free = report.view.gpu_free;
  view.waiting = report.view.waiting;
  view.most_actors = report.view.most_actors;
  return view;
}

}  // namespace

/// Computes the node's row of the view again after any change of the node, or removes it. Actors
/// that wait are tried again.
void Service::view_changed(NodeId node, Time now) {
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) {
    view_.erase(node);
  } else {
    const NodeInfo& info = at->second;
    scheduling::NodeView view = view_of(info.description, info.report);
    view.accepts = info.registered && !info.suspect && !info.draining && info.report.view.accepts;
    view.slow = info.avoided;
    for (const auto& [actor, start] : info.starts) scheduling::take(view, start.need);
    view_.update(std::move(view));
  }
  if (!waiting_.empty()) place_soon(now);
}

void Service::look_for_slow(Time now) {
  for (const SlowNodes::Change& change : slow_.on_tick(now)) {
    const auto at = nodes_.find(change.node);
    if (at == nodes_.end()) continue;
    at->second.avoided = change.avoided;
    at->second.slow = change.why;
    const std::string who = "node " + at->second.description.name;
    if (change.said)
      tell(Notice::Kind::slow_node, change.why.empty()
                                        ? who + " is as fast as others again"
                                        : who + " is slow: " + change.why +
                                              "; it gets no new work while others can take it");
    view_changed(change.node, now);
    nodes_changed(now);
  }
}

void Service::place_soon(Time now) {
  const Time soon = std::max(now, last_placing_ + kPlacingInterval);
  place_at_ = place_at_ ? std::min(*place_at_, soon) : soon;
}

/// Returns whether the actor is dead or another placing of it has begun.
bool Service::is_over(const PlaceActor& place) const {
  const auto actor = actors_.find(place.actor);
  return !actor || actor->incarnation != place.incarnation ||
         (actor->state != ActorState::placing && actor->state != ActorState::restarting);
}

/// Returns whether an expected node may still register. It may have what no other node has.
bool Service::awaits_expected(Time now) const {
  return !expected_.empty() && now < started_ + options_.expect_for;
}

/// Places an actor, or queues it behind those that wait already.
void Service::place_new(Waiting waiting, Time now) {
  if (waiting_.empty()) return place(std::move(waiting), now);
  waiting_.push_back(std::move(waiting));
  place_soon(now);
}

/// Puts the number of actors of each node into the view.
void Service::count_hosted(Time now) {
  if (now >= count_at_) {
    hosted_ = actors_.hosted();
    count_at_ = now + kCountInterval;
  }
  for (scheduling::NodeView& node : view_.nodes) {
    const auto at = hosted_.find(node.id);
    node.actors = at != hosted_.end() ? at->second : 0;
  }
}

/// Chooses a node in the view. A node that the actor's owner cannot reach is left out, since no
/// call of the owner would arrive there. A node without a process for the actor is left out while
/// another one has it. When all are full, the node that is chosen refuses the actor by name.
scheduling::Decision Service::decide(const PlaceActor& wanted, Time now) {
  count_hosted(now);
  if (const auto spec = actors_.spec(wanted.actor)) view_.self = spec->owner;
  const auto owner = nodes_.find(view_.self);
  std::vector<NodeId> closed;
  const auto close = [&closed](scheduling::NodeView& node) {
    if (std::exchange(node.accepts, false)) closed.push_back(node.id);
  };
  if (owner != nodes_.end()) {
    for (const NodeId node : owner->second.report.unreachable)
      if (scheduling::NodeView* view = view_.find(node)) close(*view);
  }
  const auto has_process = [](const scheduling::NodeView& node) {
    return node.actors < node.most_actors;
  };
  const auto would_do = [&](const scheduling::NodeView& node) {
    return node.accepts && has_process(node) && scheduling::could_fit(node, wanted.demand);
  };
  if (std::any_of(view_.nodes.begin(), view_.nodes.end(), would_do))
    for (scheduling::NodeView& node : view_.nodes)
      if (!has_process(node)) close(node);
  const scheduling::Decision decision = scheduling::place(view_, wanted.demand);
  for (const NodeId node : closed) view_.find(node)->accepts = true;
  return decision;
}

/// Returns whether the actor's owner reaches all nodes, so that it finds room wherever others do.
bool Service::reaches_all(ActorId actor) const {
  const auto spec = actors_.spec(actor);
  const auto owner = spec ? nodes_.find(spec->owner) : nodes_.end();
  return owner == nodes_.end() || owner->second.report.unreachable.empty();
}

/// Places the actor, or queues it: as busy while some node could take it later, as infeasible while
/// no node ever could. After infeasible_timeout an infeasible actor is unplaceable.
void Service::place(Waiting waiting, Time now) {
  const PlaceActor& wanted = waiting.place;
  if (is_over(wanted)) return;
  const scheduling::Decision decision = decide(wanted, now);
  waiting.why = decision.why;
  if (decision.kind == scheduling::Decision::Kind::place) {
    NodeInfo& node = nodes_.at(decision.node);
    node.starts[wanted.actor] = {wanted.incarnation, wanted.demand.need, std::nullopt};
    scheduling::take(*view_.find(decision.node), wanted.demand.need);
    ++hosted_[decision.node];
    run(actors_.on_placed(wanted.actor, wanted.incarnation, decision.node, node.epoch), now);
    return;
  }
  if (decision.kind == scheduling::Decision::Kind::busy) {
    waiting.infeasible_since.reset();
  } else {
    if (!waiting.infeasible_since) waiting.infeasible_since = now;
    const bool over = options_.infeasible_timeout >= Duration::zero() &&
                      now - *waiting.infeasible_since >= options_.infeasible_timeout;
    if (over && !awaits_expected(now)) {
      run(actors_.on_unplaceable(wanted.actor, wanted.incarnation,
                                 Error(Code::infeasible, decision.why)),
          now);
      return;
    }
    Time again = now + kPlacingInterval;
    if (!over && options_.infeasible_timeout >= Duration::zero())
      again = *waiting.infeasible_since + options_.infeasible_timeout;
    if (awaits_expected(now)) again = std::max(again, started_ + options_.expect_for);
    if (options_.infeasible_timeout >= Duration::zero())
      place_at_ = place_at_ ? std::min(*place_at_, again) : again;
  }
  waiting_.push_back(std::move(waiting));
}

/// Tries the waiting actors in order of arrival. When one finds no room, those with the same demand
/// are not tried.
void Service::place_waiting(Time now) {
  place_at_.reset();
  last_placing_ = now;
  std::vector<scheduling::ResourceDemand> busy;
  for (auto& waiting : std::exchange(waiting_, {})) {
    const bool known_busy =
        !waiting.infeasible_since &&
        std::any_of(busy.begin(), busy.end(), [&](const scheduling::ResourceDemand& demand) {
          return same_demand(demand, waiting.place.demand);
        });
    if (known_busy) {
      if (!is_over(waiting.place)) waiting_.push_back(std::move(waiting));
      continue;
    }
    const scheduling::ResourceDemand demand = waiting.place.demand;
    const bool sees_all = reaches_all(waiting.place.actor);
    const std::size_t before = waiting_.size();
    place(std::move(waiting), now);
    if (sees_all && waiting_.size() > before && !waiting_.back().infeasible_since)
      busy.push_back(demand);
  }
}

bool Service::has_room_for_waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(), [this](const Waiting& waiting) {
    return scheduling::place(view_, waiting.place.demand).kind == scheduling::Decision::Kind::place;
  });
}

/// Takes the node's answer to a start. A failed start leaves the view at once. The amounts of a
/// successful one stay subtracted until a report shows them.
void Service::end_start(NodeId node, ActorId actor, std::uint64_t incarnation, bool started,
                        Time now) {
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return;
  const auto start = at->second.starts.find(actor);
  if (start == at->second.starts.end() || start->second.incarnation != incarnation) return;
  if (!started) {
    at->second.starts.erase(start);
    view_changed(node, now);
    return;
  }
  start->second.until = now + options_.report_within;
  if (!expire_at_) expire_at_ = *start->second.until;
}

void Service::fail_lost_starts(NodeId node,
                               const std::set<std::pair<ActorId, std::uint64_t>>& hosted,
                               Time now) {
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return;
  std::vector<std::pair<ActorId, std::uint64_t>> lost;
  for (const auto& [actor, start] : at->second.starts)
    if (start.may_be_lost && !start.until && hosted.count({actor, start.incarnation}) == 0)
      lost.emplace_back(actor, start.incarnation);
  for (const auto& [actor, incarnation] : lost) {
    end_start(node, actor, incarnation, false, now);
    run(actors_.on_start_failed(actor, incarnation, std::nullopt), now);
  }
}

void Service::expire_starts(Time now) {
  expire_at_.reset();
  for (auto& [id, info] : nodes_) {
    const std::size_t before = info.starts.size();
    for (auto start = info.starts.begin(); start != info.starts.end();) {
      const std::optional<Time> until = start->second.until;
      if (until && *until > now) expire_at_ = expire_at_ ? std::min(*expire_at_, *until) : *until;
      start = until && *until <= now ? info.starts.erase(start) : std::next(start);
    }
    if (info.starts.size() != before) view_changed(id, now);
  }
}

}  // namespace troupe::control

#include "troupe/runtime/control/placing.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::control {
namespace {

constexpr Duration kRoundInterval = std::chrono::milliseconds(20);
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

Placing::Placing(const PlacingOptions& options, const NodeTable& nodes, const Directory& actors,
                 Time now)
    : options_(options),
      nodes_(nodes),
      actors_(actors),
      last_round_(now - std::chrono::hours(1)),
      expected_(options_.expected.begin(), options_.expected.end()),
      started_(now) {}

// --- nodes

void Placing::on_node(NodeId id, Time now) {
  const NodeTable::Node* node = nodes_.find(id);
  if (node == nullptr) {
    view_.erase(id);
  } else {
    scheduling::NodeView view = view_of(node->description, node->report);
    view.accepts = node->accepts();
    view.slow = node->avoided;
    if (const auto at = starts_.find(id); at != starts_.end())
      for (const auto& [actor, start] : at->second) scheduling::take(view, start.need);
    view_.update(std::move(view));
  }
  if (!waiting_.empty()) place_soon(now);
}

void Placing::on_report(NodeId node) {
  if (const auto at = starts_.find(node); at != starts_.end())
    std::erase_if(at->second, [](const auto& one) { return one.second.until.has_value(); });
}

void Placing::on_reset(NodeId node) {
  if (const auto at = starts_.find(node); at != starts_.end())
    for (auto& [actor, start] : at->second) start.may_be_lost = !start.until;
}

// --- starts

void Placing::end_start(NodeId node, const Life& life, bool started, Time now) {
  const auto at = starts_.find(node);
  if (at == starts_.end()) return;
  const auto start = at->second.find(life.first);
  if (start == at->second.end() || start->second.incarnation != life.second) return;
  if (!started) {
    at->second.erase(start);
    on_node(node, now);
    return;
  }
  start->second.until = now + options_.report_within;
  if (!expire_at_) expire_at_ = *start->second.until;
}

std::vector<Placing::Life> Placing::end_lost_starts(NodeId node, const std::set<Life>& hosted,
                                                    Time now) {
  std::vector<Life> lost;
  const auto at = starts_.find(node);
  if (at == starts_.end()) return lost;
  for (const auto& [actor, start] : at->second)
    if (start.may_be_lost && !start.until && hosted.count({actor, start.incarnation}) == 0)
      lost.emplace_back(actor, start.incarnation);
  for (const Life& life : lost) end_start(node, life, false, now);
  return lost;
}

void Placing::on_tick(Time now) {
  if (expire_at_ && *expire_at_ <= now) expire_starts(now);
}

void Placing::expire_starts(Time now) {
  expire_at_.reset();
  for (auto& [node, starts] : starts_) {
    const std::size_t before = starts.size();
    for (auto start = starts.begin(); start != starts.end();) {
      const std::optional<Time> until = start->second.until;
      if (until && *until > now) expire_at_ = expire_at_ ? std::min(*expire_at_, *until) : *until;
      start = until && *until <= now ? starts.erase(start) : std::next(start);
    }
    if (starts.size() != before) on_node(node, now);
  }
}

Time Placing::next_tick() const noexcept {
  return std::min(place_at_.value_or(Time::max()), expire_at_.value_or(Time::max()));
}

// --- choice

/// Returns whether the actor is dead or another placing of it has begun.
bool Placing::is_over(const PlaceActor& place) const {
  const auto actor = actors_.find(place.actor);
  return !actor || actor->incarnation != place.incarnation ||
         (actor->state != ActorState::placing && actor->state != ActorState::restarting);
}

/// Returns whether an expected node may still register. It may have what no other node has.
bool Placing::awaits_expected(Time now) const {
  return !expected_.empty() && now < started_ + options_.expect_for;
}

/// Puts the number of actors of each node into the view.
void Placing::count_hosted(Time now) {
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
scheduling::Decision Placing::decide(const PlaceActor& wanted, Time now) {
  count_hosted(now);
  if (const auto spec = actors_.spec(wanted.actor)) view_.self = spec->owner;
  const NodeTable::Node* owner = nodes_.find(view_.self);
  std::vector<NodeId> closed;
  const auto close = [&closed](scheduling::NodeView& node) {
    if (std::exchange(node.accepts, false)) closed.push_back(node.id);
  };
  if (owner != nullptr) {
    for (const NodeId node : owner->report.unreachable)
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
bool Placing::reaches_all(ActorId actor) const {
  const auto spec = actors_.spec(actor);
  const NodeTable::Node* owner = spec ? nodes_.find(spec->owner) : nullptr;
  return owner == nullptr || owner->report.unreachable.empty();
}

// --- queue

void Placing::place_soon(Time now) {
  const Time soon = std::max(now, last_round_ + kRoundInterval);
  place_at_ = place_at_ ? std::min(*place_at_, soon) : soon;
}

std::optional<Placing::Verdict> Placing::add(const PlaceActor& wanted, Time now) {
  Waiting waiting{wanted, std::nullopt, {}};
  if (waiting_.empty()) return place(std::move(waiting), now);
  waiting_.push_back(std::move(waiting));
  place_soon(now);
  return std::nullopt;
}

/// Places the actor, or queues it: as busy while some node could take it later, as infeasible while
/// no node ever could. After infeasible_timeout an infeasible actor is unplaceable.
std::optional<Placing::Verdict> Placing::place(Waiting waiting, Time now) {
  const PlaceActor& wanted = waiting.place;
  if (is_over(wanted)) return std::nullopt;
  const scheduling::Decision decision = decide(wanted, now);
  waiting.why = decision.why;
  if (decision.kind == scheduling::Decision::Kind::place) {
    starts_[decision.node][wanted.actor] = {wanted.incarnation, wanted.demand.need, std::nullopt};
    scheduling::take(*view_.find(decision.node), wanted.demand.need);
    ++hosted_[decision.node];
    return Verdict{
        wanted.actor, wanted.incarnation, decision.node, nodes_.find(decision.node)->epoch, {}};
  }
  if (decision.kind == scheduling::Decision::Kind::busy) {
    waiting.infeasible_since.reset();
  } else {
    if (!waiting.infeasible_since) waiting.infeasible_since = now;
    const bool over = options_.infeasible_timeout >= Duration::zero() &&
                      now - *waiting.infeasible_since >= options_.infeasible_timeout;
    if (over && !awaits_expected(now))
      return Verdict{wanted.actor, wanted.incarnation, {}, 0, decision.why};
    Time again = now + kRoundInterval;
    if (!over && options_.infeasible_timeout >= Duration::zero())
      again = *waiting.infeasible_since + options_.infeasible_timeout;
    if (awaits_expected(now)) again = std::max(again, started_ + options_.expect_for);
    if (options_.infeasible_timeout >= Duration::zero())
      place_at_ = place_at_ ? std::min(*place_at_, again) : again;
  }
  waiting_.push_back(std::move(waiting));
  return std::nullopt;
}

void Placing::begin_round(Time now) {
  place_at_.reset();
  last_round_ = now;
  round_.left = std::exchange(waiting_, {});
  round_.busy.clear();
}

/// Tries actors until one has its verdict. When one finds no room, those with the same demand are
/// not tried.
std::optional<Placing::Verdict> Placing::next(Time now) {
  while (!round_.left.empty()) {
    Waiting waiting = std::move(round_.left.front());
    round_.left.pop_front();
    const bool known_busy =
        !waiting.infeasible_since && std::any_of(round_.busy.begin(), round_.busy.end(),
                                                 [&](const scheduling::ResourceDemand& demand) {
                                                   return same_demand(demand, waiting.place.demand);
                                                 });
    if (known_busy) {
      if (!is_over(waiting.place)) waiting_.push_back(std::move(waiting));
      continue;
    }
    const scheduling::ResourceDemand demand = waiting.place.demand;
    const bool sees_all = reaches_all(waiting.place.actor);
    const std::size_t before = waiting_.size();
    if (auto verdict = place(std::move(waiting), now)) return verdict;
    if (sees_all && waiting_.size() > before && !waiting_.back().infeasible_since)
      round_.busy.push_back(demand);
  }
  return std::nullopt;
}

bool Placing::has_room_for_waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(), [this](const Waiting& waiting) {
    return scheduling::place(view_, waiting.place.demand).kind == scheduling::Decision::Kind::place;
  });
}

}  // namespace troupe::control

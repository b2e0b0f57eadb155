#include "troupe/tune/internal/trial_hosts.hpp"

#include <algorithm>
#include <utility>

namespace troupe::tune {
namespace {

using internal::TrialMessage;

constexpr int kMostAttempts = 1000;  ///< of one host
constexpr Duration kLongestIdle = std::chrono::seconds(1);
constexpr Duration kLookEvery = std::chrono::milliseconds(250);

Admission::Policy policy_of(const ExperimentOptions& options) {
  const auto kind = options.placement.kind();
  if (kind == Placement::pack.kind()) return Admission::Policy::pack;
  if (kind == Placement::spread.kind() || kind == Placement().kind())
    return Admission::Policy::spread;
  throw InvalidArgument(Code::invalid_argument,
                        "tune: Options::placement names one node: take Placement::spread or "
                        "Placement::pack, and name nodes by per_trial.labels");
}

}  // namespace

TrialHosts::TrialHosts(Context ctx, const ExperimentOptions& options,
                       const internal::SpawnTrial& spawn)
    : ctx_(ctx),
      options_(options),
      spawn_(spawn),
      admission_(options.per_trial, policy_of(options)) {
  look(steady_now());
  const std::string never = admission_.never();
  if (!never.empty()) throw Infeasible(Code::infeasible, never);
}

TrialHosts::~TrialHosts() {
  for (const auto& [id, host] : hosts_) {
    loops_.forget(id);
    host.handle.kill();
  }
}

void TrialHosts::look(Time now) {
  std::vector<int> old;
  for (const auto& [id, host] : hosts_)
    if (host.trial < 0 && now - host.idle_since >= kLongestIdle) old.push_back(id);
  for (const int id : old) kill(id);
  if (looked_ != Time{} && now - looked_ < kLookEvery) return;
  const bool first = !std::exchange(has_looked_, true);
  looked_ = now;
  std::vector<NodeInfo> nodes;
  try {
    nodes = ctx_.cluster().nodes;
  } catch (const Unavailable&) {  // this node stands still; what was seen before has to do
    if (first) throw;
    return;
  }
  many_nodes_ =
      std::count_if(nodes.begin(), nodes.end(), [](const NodeInfo& n) { return n.alive; }) > 1;
  admission_.nodes(std::move(nodes), now);
}

Time TrialHosts::next_look() const {
  return looked_ + 2 * kLookEvery;
}

bool TrialHosts::begin(internal::TrialSetup setup, const Point& params,
                       std::optional<NodeId> prefer) {
  const Admission::Choice choice = admission_.choose(prefer, steady_now());
  const PerTrial& need = options_.per_trial;
  setup.metric = options_.metric;
  setup.replicate = many_nodes_;
  setup.workers = need.workers;
  setup.cpus = need.cpus;
  setup.gpus = need.gpus;
  setup.holds = !admission_.over_nodes();
  int id = choice.host;
  if (id < 0) {
    id = spawned_++;
    const PerTrial& all = admission_.host_need();
    ActorOptions with;
    with.cpus = all.cpus;
    with.gpus = all.gpus;
    with.memory = all.memory;
    with.resources = all.resources;
    with.labels = all.labels;
    with.placement = choice.node ? Placement::on(*choice.node) : options_.placement;
    Host& host = hosts_[id];
    host.handle = spawn_(with);
    host.node = choice.node;
    admission_.spawned(id, choice.node);
    loops_.follow(id, host.handle.take);
  } else {
    admission_.resumed(id);
  }
  Host& host = hosts_[id];
  host.trial = setup.number;
  ++host.attempts;
  running_[setup.number] = id;
  host.handle.start(setup, params);
  return choice.host >= 0;
}

void TrialHosts::reply(int trial, internal::Verdict verdict) {
  const int id = host_of(trial);
  if (id >= 0) hosts_[id].handle.reply(verdict);
}

void TrialHosts::end(int trial, bool keeps) {
  const int id = host_of(trial);
  if (id < 0) return;
  running_.erase(trial);
  Host& host = hosts_[id];
  const bool stays = keeps && !options_.fresh_process && options_.per_trial.gpus <= 0 &&
                     host.attempts < kMostAttempts;
  if (!stays) return kill(id);
  host.trial = -1;
  host.idle_since = steady_now();
  admission_.idle(id);
}

void TrialHosts::kill(int id) {
  const auto found = hosts_.find(id);
  loops_.forget(id);
  found->second.handle.kill();
  hosts_.erase(found);
  admission_.gone(id, steady_now());
}

int TrialHosts::host_of(int trial) const {
  const auto found = running_.find(trial);
  return found != running_.end() ? found->second : -1;
}

std::optional<NodeId> TrialHosts::node_of(int trial) const {
  const int id = host_of(trial);
  return id < 0 ? std::nullopt : hosts_.at(id).node;
}

bool TrialHosts::waits(int trial) const {
  const int id = host_of(trial);
  return id >= 0 && admission_.waits(id);
}

std::optional<TrialHosts::Heard> TrialHosts::next(Time until) {
  auto heard = loops_.next(until);
  if (!heard) return std::nullopt;
  const auto found = hosts_.find(heard->from);
  if (found == hosts_.end()) return Heard{};
  Host& host = found->second;
  Heard said{host.trial, std::move(heard->events), std::move(heard->death), false};
  for (const TrialMessage& message : said.messages) {
    if (message.kind == TrialMessage::Kind::ready) {
      host.node = message.node;
      admission_.ready(heard->from, message.node);
    } else if (message.kind == TrialMessage::Kind::gathered) {
      admission_.gathered(heard->from);
    }
  }
  if (!said.death) return said;
  const std::optional<NodeId> node = host.node;
  running_.erase(host.trial);
  kill(heard->from);
  if (said.trial < 0) return said;  // it was idle
  looked_ = Time{};
  look(steady_now());
  said.node_lost =
      node && (said.death->code() == Code::actor_unavailable || !admission_.accepts(*node));
  return said;
}

}  // namespace troupe::tune

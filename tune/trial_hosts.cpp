#include "troupe/tune/internal/trial_hosts.hpp"

#include <algorithm>
#include <utility>

namespace troupe::tune {
namespace {

using internal::TrialMessage;

constexpr int kMostAttempts = 1000;  ///< of one host
constexpr Duration kLongestIdle = std::chrono::seconds(1);
/// How long a node may take to answer a probe.
constexpr Duration kProbeWithin = std::chrono::seconds(10);
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

/// Runs on a node to show that it lives.
std::vector<TrialMessage> answer() {
  return std::vector<TrialMessage>(1);
}

/// The number under which the probe for a host is followed.
int probe_of(int host) {
  return -1 - host;
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
  host.attempt = setup.attempt;
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
  for (const auto& [host, doubt] : doubts_) until = std::min(until, doubt.until);
  auto heard = loops_.next(until);
  if (!heard) return judge_lost();
  if (heard->from < 0) return judge(probe_of(heard->from), heard->death.has_value());
  const auto found = hosts_.find(heard->from);
  if (found == hosts_.end()) return Heard{};
  Host& host = found->second;
  Heard said{host.trial, host.attempt, std::move(heard->events), std::move(heard->death), false};
  for (const TrialMessage& message : said.messages) {
    if (message.kind == TrialMessage::Kind::ready) {
      host.node = message.node;
      admission_.ready(heard->from, message.node);
    } else if (message.kind == TrialMessage::Kind::gathered) {
      admission_.gathered(heard->from);
    }
  }
  if (!said.death) return said;
  return died(heard->from, std::move(said));
}

/// Takes the host away. If its node may be dead, too, a probe goes there, and its end is heard
/// later. Processes of a node may be seen to die before the node is.
std::optional<TrialHosts::Heard> TrialHosts::died(int id, Heard heard) {
  const std::optional<NodeId> node = hosts_.at(id).node;
  running_.erase(heard.trial);
  kill(id);
  if (heard.trial < 0 || !node || *node == ctx_.node()) return heard;
  looked_ = Time{};
  look(steady_now());
  heard.node_lost = heard.death->code() == Code::actor_unavailable || !admission_.accepts(*node);
  if (heard.node_lost) return heard;
  doubts_[id] = {std::move(heard), *node, steady_now() + kProbeWithin};
  TaskOptions with;
  with.name = "does the node of a trial live";
  with.cpus = 0;
  with.placement = Placement::on(*node);
  with.max_retries = 0;
  loops_.follow(probe_of(id), [ctx = ctx_, with] { return ctx.with(with).submit<answer>(); });
  return Heard{};
}

/// Returns the death of a host, once it is known whether its node lives.
std::optional<TrialHosts::Heard> TrialHosts::judge(int id, bool node_lost) {
  loops_.forget(probe_of(id));
  const auto found = doubts_.find(id);
  if (found == doubts_.end()) return Heard{};
  Heard heard = std::move(found->second.heard);
  doubts_.erase(found);
  heard.node_lost = node_lost;
  return heard;
}

/// Returns a death on a node that is known to be lost, or has not answered. A host that has not
/// begun on a lost node dies, too: the scheduler would look for the node for a minute.
std::optional<TrialHosts::Heard> TrialHosts::judge_lost() {
  for (const auto& [id, host] : hosts_) {
    if (!host.node || !admission_.is_lost(*host.node)) continue;
    Heard heard{
        host.trial, host.attempt, {}, Error(Code::actor_unavailable, "its node is lost"), true};
    running_.erase(host.trial);
    kill(id);
    return heard;
  }
  for (const auto& [host, doubt] : doubts_)
    if (doubt.until <= steady_now() || !admission_.accepts(doubt.node)) return judge(host, true);
  return std::nullopt;
}

}  // namespace troupe::tune

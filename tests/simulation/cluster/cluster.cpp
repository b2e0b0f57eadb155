#include "tests/simulation/cluster/cluster.hpp"

#include <algorithm>

namespace troupe::sim::cluster {

using namespace std::chrono_literals;

/// A schedule has some tens of thousands.
constexpr std::uint64_t kMostEvents = 2'000'000;

std::string_view name_of(Mark mark) noexcept {
  constexpr std::string_view names[] = {"kill_worker",
                                        "kill_actor_worker",
                                        "kill_starting_worker",
                                        "kill_blocked_worker",
                                        "kill_driver",
                                        "kill_by_handle",
                                        "kill_may_restart",
                                        "worker_start_fails",
                                        "worker_start_slow",
                                        "slow_task",
                                        "task_throws",
                                        "flaky_task",
                                        "constructor_throws",
                                        "ring_small",
                                        "ring_read_late",
                                        "agent_pass_late",
                                        "memory_short",
                                        "bulk_lost",
                                        "bulk_closed",
                                        "pull_refused",
                                        "report_burst",
                                        "control_restart",
                                        "commit_torn",
                                        "bit_flip_in_copy",
                                        "agent_restart",
                                        "resource_hog",
                                        "late_probe",
                                        "name_clash",
                                        "link_window_small",
                                        "backlog_small",
                                        "spilled",
                                        "spill_failed",
                                        "remote_grant",
                                        "handed_back",
                                        "recalled",
                                        "reclaimed",
                                        "blocked",
                                        "retried",
                                        "forwarded",
                                        "pulled",
                                        "pulled_bulk",
                                        "passed_on",
                                        "remote_actor",
                                        "actor_restarted",
                                        "found_by_name",
                                        "peer_reset",
                                        "control_reset",
                                        "node_declared_dead",
                                        "node_exited",
                                        "refused_store",
                                        "held_answers",
                                        "portal_stalled",
                                        "lost_object"};
  static_assert(std::size(names) == kMarks);
  return names[static_cast<std::size_t>(mark)];
}

std::string Tuning::text() const {
  std::string text;
  const auto join = [&](const char* option, const auto& all, const auto& word) {
    bool first = true;
    for (const auto& one : all) {
      text += first ? std::string(" ") + option + " " : ",";
      text += word(one);
      first = false;
    }
  };
  join("--off", off, [](const std::string& one) { return one; });
  join("--mute", muted, [](std::uint64_t one) { return std::to_string(one); });
  if (most_actions != ~std::uint64_t{0}) text += " --actions " + std::to_string(most_actions);
  if (canary) text += " --canary";
  return text;
}

// --- the plan

Plan Cluster::plan_of(std::uint64_t seed, const Tuning& tuning) {
  Random random(seed ^ 0x636c7573746572ULL);
  const auto is_off = [&](std::string_view name) {
    return tuning.off.count(std::string(name)) != 0;
  };
  const auto some = [&](double chance, double most) {
    return random.chance(chance) ? random.uniform() * most : 0.0;
  };
  Plan plan;
  plan.machines = 4 + random.below(3);  // control and three to five nodes
  for (sim::NodeIndex i = 1; i < plan.machines; ++i) {
    if (i == 1 || random.chance(0.4)) plan.drivers.insert(i);
    plan.cpus.push_back(static_cast<double>(1 + random.below(3)));
  }
  plan.workload.actions = 20 + random.below(40);
  plan.workload.between = 1ms * (20 + random.below(200));
  plan.workload.actors = random.chance(0.85);
  plan.workload.nested = random.chance(0.8);
  plan.workload.large = random.chance(0.8);
  plan.workload.bulk = random.chance(0.6);
  plan.workload.throws = random.chance(0.7);
  plan.workload.names = random.chance(0.7);
  plan.workload.slow_tasks = some(0.3, 0.1);
  plan.workload.actions = std::min(plan.workload.actions, tuning.most_actions);
  FaultsAllowed allowed;
  allowed.disks = true;
  plan.faults = FaultPlan::random(random, allowed);
  plan.faults.longest_pause = 14s;
  plan.faults.longest_partition = 14s;
  plan.faults.longest_down = 6s;
  plan.faults.between_events = 1ms * (500 + random.below(6000));
  plan.faults.drop *= 0.3;
  plan.faults_for = 1ms * (4000 + random.below(12000));
  const double calm = random.uniform();
  if (calm < 0.25) plan.faults.weight = {};  // nothing worse than single messages
  if (calm < 0.05) {
    const Duration delay = plan.faults.delay;
    plan.faults = FaultPlan::calm();
    plan.faults.delay = delay;
  }
  if (calm >= 0.15) {
    for (const Mark kind : {Mark::kill_worker, Mark::kill_actor_worker, Mark::kill_starting_worker,
                            Mark::kill_blocked_worker, Mark::kill_driver, Mark::report_burst})
      plan.strikes[static_cast<std::size_t>(kind)] = some(0.6, kind == Mark::kill_driver ? 0.1 : 1);
    plan.trouble = some(0.3, 0.2);
    plan.slow_starts = some(0.3, 0.1);
    plan.failed_starts = some(0.3, 0.2);
  }
  plan.between_strikes = 1ms * (200 + random.below(3000));
  plan.late_passes = random.chance(0.2);
  plan.late_rings = random.chance(0.3);
  plan.small_backlog = random.chance(0.1);
  plan.small_window = random.chance(0.2);
  plan.ring_capacity = random.chance(0.2) ? 1 + random.below(4) : 32;

  for (std::size_t i = 0; i < fault_kinds; ++i)
    if (is_off(sim::name_of(static_cast<Fault>(i)))) plan.faults.weight[i] = 0;
  if (is_off("drop")) plan.faults.drop = 0;
  if (is_off("duplicate")) plan.faults.duplicate = 0;
  if (is_off("reorder")) plan.faults.reorder = 0;
  if (is_off("delay_spike")) plan.faults.delay_spike = 0;
  if (is_off("buggify")) plan.faults.buggify = 0;
  for (std::size_t i = 0; i < kFaultMarks; ++i)
    if (is_off(name_of(static_cast<Mark>(i)))) plan.strikes[i] = 0;
  if (is_off("trouble")) plan.trouble = 0;
  if (is_off("worker_start_slow")) plan.slow_starts = 0;
  if (is_off("worker_start_fails")) plan.failed_starts = 0;
  if (is_off("slow_task")) plan.workload.slow_tasks = 0;
  if (is_off("agent_pass_late")) plan.late_passes = false;
  if (is_off("ring_read_late")) plan.late_rings = false;
  if (is_off("backlog_small")) plan.small_backlog = false;
  if (is_off("link_window_small")) plan.small_window = false;
  if (is_off("ring_small")) plan.ring_capacity = 32;
  if (is_off("actors")) plan.workload.actors = false;
  if (is_off("nested")) plan.workload.nested = false;
  if (is_off("large")) plan.workload.large = false;
  if (is_off("bulk")) plan.workload.bulk = false;
  if (is_off("throws")) plan.workload.throws = false;
  if (is_off("names")) plan.workload.names = false;
  if (is_off("drivers")) plan.drivers = {1};
  return plan;
}

sim::WorldOptions Cluster::options_of(std::uint64_t seed, const Plan& plan, const Tuning& tuning) {
  seed_random_ids(seed);
  sim::WorldOptions options;
  options.seed = seed;
  options.nodes = plan.machines;
  options.delivery = Delivery::datagram;
  options.plan = plan.faults;
  options.muted = tuning.muted;
  return options;
}

Cluster::Cluster(std::uint64_t seed, const Tuning& tuning)
    : plan(plan_of(seed, tuning)),
      world(options_of(seed, plan, tuning), [this](sim::NodeIndex i) { return make(i); }),
      disk(std::make_shared<ControlDisk>(seed)),
      seed_(seed),
      tuning_(tuning) {
  for (std::size_t i = 0; i < plan.machines; ++i) shell_randoms_.emplace_back(seed * 31 + i);
  truth.fail = [this](std::string why) { world.fail(std::move(why)); };
  world.attach_disk(0, disk);
  world.add_invariant([this] {
    return ++events_ > kMostEvents ? std::string("livelock: events without an end") : std::string();
  });
  if (plan.ring_capacity < 32) truth.mark(Mark::ring_small);
  schedule_strikes();
}

Cluster::~Cluster() {
  graveyard.clear();
  free_random_ids();
}

std::unique_ptr<sim::Node<Packet>> Cluster::make(sim::NodeIndex i) {
  if (i == 0) return std::make_unique<ControlNode>(*this, control_id());
  if (world.incarnation(i) > 0) truth.mark(Mark::agent_restart);
  return std::make_unique<Agent>(*this, i, NodeId{100 + world.incarnation(i), i});
}

scheduling::LeaseOptions Cluster::lease_options(sim::NodeIndex self) const {
  scheduling::LeaseOptions options;
  options.total.cpus = scheduling::amount_of(plan.cpus[self - 1]);
  options.total.memory = 1ll << 30;
  if (self <= 2) options.total.custom = {{"gold", scheduling::amount_of(1)}};
  options.name = "n" + std::to_string(self);
  options.max_workers = static_cast<std::uint32_t>(plan.cpus[self - 1]);
  options.extra_worker_interval = 10ms;
  options.infeasible_timeout = 60s;
  return options;
}

net::LinkOptions Cluster::link_options() {
  net::LinkOptions options;
  if (plan.small_window) {
    options.window_messages = 16;
    options.window_bytes = 1 << 20;
    truth.mark(Mark::link_window_small);
  }
  return options;
}

// --- faults of its own

void Cluster::schedule_strikes() {
  Random random(seed_ ^ 0x737472696b65ULL);
  double sum = 0;
  for (const double weight : plan.strikes) sum += weight;
  if (sum <= 0) return;
  for (Duration at = plan.between_strikes; at < plan.faults_for;
       at +=
       Duration(1 + random.below(2 * static_cast<std::uint64_t>(plan.between_strikes.count())))) {
    double dice = random.uniform() * sum;
    std::size_t kind = 0;
    while (kind + 1 < kFaultMarks && dice >= plan.strikes[kind]) dice -= plan.strikes[kind++];
    const auto victim = static_cast<sim::NodeIndex>(1 + random.below(plan.machines - 1));
    const std::uint64_t number = 1'000'000 + strikes_++;
    if (tuning_.muted.count(number) != 0) continue;
    world.at(at, [this, kind, victim] { strike(static_cast<Mark>(kind), victim); });
  }
}

void Cluster::strike(Mark kind, sim::NodeIndex victim) {
  world.with(victim, [&](sim::Env<Packet>& env) {
    switch (kind) {
      case Mark::kill_worker:
      case Mark::kill_actor_worker:
      case Mark::kill_starting_worker:
      case Mark::kill_blocked_worker:
      case Mark::kill_driver:
        // Where nobody is of that kind, one of another is.
        if (!agent(victim)->strike_process(env, kind) && kind != Mark::kill_driver)
          agent(victim)->strike_process(env, Mark::kill_worker);
        break;
      default: agent(victim)->strike_report(env);
    }
  });
}

// --- the truth about control

bool Cluster::is_gone(NodeId node) {
  const auto index = static_cast<sim::NodeIndex>(node.low);
  return !world.alive(index) || agent(index)->id() != node;
}

void Cluster::acknowledged(const control::Service& service, ActorId actor) {
  const auto spec = service.actors().spec(actor);
  if (spec && spec->detached) truth.acknowledged.emplace(actor, spec->name);
}

void Cluster::check_acknowledged(const control::Service& service, bool) {
  for (const auto& [actor, name] : truth.acknowledged) {
    if (truth.killed.count(actor) != 0) continue;
    const auto location = service.actors().find(actor);
    if (!location) return truth.fail("an acknowledged detached actor is not known any more");
    if (location->state == control::ActorState::dead)
      return truth.fail("an acknowledged detached actor is dead, and nobody killed it");
  }
}

// --- the run

sim::Report Cluster::run() {
  sim::Report report = world.run({plan.faults_for, 400s, [this] { return done(); }});
  report.calls = truth.started_calls;
  report.nodes = plan.machines - 1;
  if (report.violation.rfind("liveness", 0) == 0) {
    const std::string why = why_not_done();
    const bool waits = why.find("waits for") != std::string::npos;
    const bool unwelcome = why.find("not welcome") != std::string::npos;
    report.violation = std::string("liveness, ") +
                       (waits       ? "an answer never came"
                        : unwelcome ? "a driver was never welcomed"
                                    : "something was left behind") +
                       ":" + why;
  }
  return report;
}

/// Detached actors outlive their jobs: somebody ends them once all drivers are gone.
void Cluster::end_detached() {
  if (world.now() < next_end_) return;
  next_end_ = world.now() + 2s;
  for (const auto& [spec, location] : control()->service()->actors().list()) {
    if (!spec.detached || location.state == control::ActorState::dead) continue;
    truth.killed.insert(spec.id);
    const ActorId id = spec.id;
    world.with(1, [&](sim::Env<Packet>& env) { agent(1)->end_actor(env, id); });
  }
}

bool Cluster::done() {
  if (!calmed_) {
    calmed_ = true;
    for (sim::NodeIndex i = 1; i < plan.machines; ++i)
      if (world.alive(i)) agent(i)->calm();
    plan.late_passes = plan.late_rings = false;
    plan.trouble = 0;
  }
  if (world.now() < next_look_) return false;
  next_look_ = world.now() + 100ms;
  if (!world.alive(0) || control()->service() == nullptr) return false;
  check_acknowledged(*control()->service(), true);
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (!world.alive(i) || !agent(i)->registered() || !agent(i)->drivers_done()) return false;
  end_detached();
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (!agent(i)->left_over().empty()) return false;
  return true;
}

std::string Cluster::why_not_done() {
  std::string text;
  if (!world.alive(0)) text += " control is dead;";
  for (sim::NodeIndex i = 1; i < plan.machines; ++i) {
    text += " node " + std::to_string(i) + ":";
    if (!world.alive(i)) {
      text += " dead;";
      continue;
    }
    if (!agent(i)->registered()) text += " not registered;";
    text += agent(i)->why_busy() + agent(i)->left_over() + ";";
  }
  return text;
}

sim::Report run_schedule(std::uint64_t seed, const Tuning& tuning, Truth* truth,
                         std::uint64_t* planned) {
  Cluster cluster(seed, tuning);
  sim::Report report = cluster.run();
  if (truth != nullptr) {
    *truth = cluster.truth;
    truth->fail = nullptr;
  }
  if (planned != nullptr) *planned = cluster.planned();
  return report;
}

}  // namespace troupe::sim::cluster

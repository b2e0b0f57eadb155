/// The cluster world: faults that a seed times against what control and agents do, checks of what
/// control says, and the conditions under which a schedule is over.
#include "tests/simulation/cluster/cluster.hpp"

#include <algorithm>

namespace troupe::sim::cluster {

using namespace std::chrono_literals;

/// An ordinary schedule has some tens of thousands of events.
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
                                        "carry_window_small",
                                        "transfers_small",
                                        "talk_dropped",
                                        "kill_control_aimed",
                                        "kill_maker_aimed",
                                        "kill_idle_at_request",
                                        "slow_news_of_death",
                                        "node_slow",
                                        "killed_in_a_frame",
                                        "agent_stopped",
                                        "agent_stopped_long",
                                        "machine_slept",
                                        "machine_slept_long",
                                        "all_stopped",
                                        "all_stopped_long",
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
                                        "actor_halted",
                                        "proxy_stalled",
                                        "lost_object",
                                        "killed_twice",
                                        "next_life_waited",
                                        "nested_got",
                                        "placed_on_node",
                                        "resumed",
                                        "sent_elsewhere",
                                        "lingered",
                                        "in_flight_undone",
                                        "second_attempt",
                                        "served_beside_stopped",
                                        "stood_still_alone",
                                        "two_lives"};
  static_assert(std::size(names) == kMarks);
  return names[static_cast<std::size_t>(mark)];
}

// --- the run's setting

sim::WorldOptions Cluster::options_of(std::uint64_t seed, const Plan& plan, const Tuning& tuning) {
  seed_random_ids(seed);
  sim::WorldOptions options;
  options.seed = seed;
  options.nodes = plan.machines;
  options.delivery = Delivery::datagram;
  options.plan = plan.faults;
  options.muted = tuning.muted;
  options.most_events = kMostEvents;
  return options;
}

Cluster::Cluster(std::uint64_t seed, const Tuning& tuning)
    : plan(Plan::of(seed, tuning)),
      disk(std::make_shared<ControlDisk>(seed)),
      world(options_of(seed, plan, tuning), [this](sim::NodeIndex i) { return make(i); }),
      seed_(seed),
      tuning_(tuning),
      aim_(seed ^ 0x61696dULL),
      power_(seed ^ 0x706f776572ULL),
      still_(seed ^ 0x7374696c6cULL) {
  for (std::size_t i = 0; i < plan.machines; ++i) shell_randoms_.emplace_back(seed * 31 + i);
  truth.fail = [this](std::string why) { world.fail(std::move(why)); };
  world.attach_disk(0, disk);
  if (plan.old_jobs != 0) disk->write_ended_jobs(plan.old_jobs);
  if (plan.ring_capacity < 32) truth.mark(Mark::ring_small);
  if (plan.carry_window < wire::kCarryWindow) truth.mark(Mark::carry_window_small);
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
  options.total.custom.emplace_back("seat", scheduling::amount_of(1));
  options.name = "n" + std::to_string(self);
  options.max_workers = static_cast<std::uint32_t>(plan.cpus[self - 1]);
  options.extra_worker_interval = 10ms;
  options.infeasible_timeout = 20s;
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
  if (plan.cut_at > Duration{}) {
    const auto victim = static_cast<sim::NodeIndex>(2 + random.below(plan.machines - 2));
    world.at(plan.cut_at, [this, victim] { world.isolate(victim, plan.cut_for); });
  }
  schedule_stops();
  if (plan.away_at > Duration{}) {
    const std::uint64_t how = random.below(4);
    world.at(plan.away_at, [this, how] {
      if (how == 0) world.kill(0);
      if (how == 1) world.crash(0);
      if (how == 2) world.pause(0, plan.faults_for - plan.away_at);
      if (how == 3) world.isolate(0, plan.faults_for - plan.away_at);
    });
  }
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

/// Schedules the plan's stops: of single agents while the processes of their nodes run on, of
/// whole machines that sleep, and of all machines at once.
void Cluster::schedule_stops() {
  Random random(seed_ ^ 0x73746f707073ULL), how(seed_ ^ 0x736c65657073ULL);
  const auto stop = [&](Duration at, Duration length) {
    const auto from = static_cast<sim::NodeIndex>(random.below(plan.machines - 1));
    const std::uint64_t number = 4'000'000 + stops_++;
    const bool sleeps = how.chance(plan.sleeps);
    if (tuning_.muted.count(number) != 0) return;
    world.at(at, [this, from, length, sleeps] { stop_an_agent(from, length, sleeps); });
  };
  if (plan.stop_for > Duration{}) stop(plan.stop_at, plan.stop_for);
  for (const auto& [at, length] : plan.standstills)
    if (tuning_.muted.count(4'000'000 + stops_++) == 0)
      world.at(at, [this, length] { stop_all(length); });
  if (plan.between_stops == Duration{}) return;
  const auto mean = static_cast<std::uint64_t>(plan.between_stops.count());
  for (Duration at = plan.between_stops; at < plan.faults_for;
       at += Duration(1 + random.below(2 * mean)))
    stop(at, 1ms * (1 + random.below(random.chance(0.7) ? 900 : 6000)));
}

/// Stops every machine with all that runs on it, as a suspended container is stopped. The
/// machines stop within 30 ms of each other. Some lose their connection to control afterwards.
void Cluster::stop_all(Duration length) {
  constexpr std::uint64_t kApart = 30'000'000;
  truth.mark(length < 10s ? Mark::all_stopped : Mark::all_stopped_long);
  for (sim::NodeIndex i = 0; i < plan.machines; ++i) {
    const Duration from(still_.below(kApart)), more(still_.below(kApart));
    world.at(world.now() - Time{} + from, [this, i, length, more] {
      if (world.stand_still(i, length + more) && i != 0 && verbose())
        agent(i)->log("every machine stands still for " + std::to_string(length / 1ms) + " ms");
    });
    if (i == 0 || !still_.chance(0.1)) continue;
    const Duration then(still_.below(50'000'000)), down(still_.below(1'300'000'000));
    world.at(world.now() - Time{} + from + length + more + then,
             [this, i, down] { world.drop_connection(i, 0, down); });
  }
}

/// Prefers an agent whose node has a driver and a named actor, since these run on while it is
/// stopped.
void Cluster::stop_an_agent(sim::NodeIndex from, Duration length, bool sleeps) {
  sim::NodeIndex victim = 1 + from;
  for (sim::NodeIndex i = 0; i + 1 < plan.machines; ++i) {
    const sim::NodeIndex one = 1 + (from + i) % (plan.machines - 1);
    if (!world.alive(one) || !agent(one)->has_callers_of_actors()) continue;
    victim = one;
    break;
  }
  if (sleeps ? !world.sleep(victim, length) : !world.stop_alone(victim, length)) return;
  if (sleeps) {
    awake_from_[victim] = world.now() + length;
    truth.mark(length < 10s ? Mark::machine_slept : Mark::machine_slept_long);
  } else {
    truth.mark(length < 10s ? Mark::agent_stopped : Mark::agent_stopped_long);
  }
  if (verbose())
    agent(victim)->log((sleeps ? "its machine sleeps for " : "its agent stands still for ") +
                       std::to_string(length / 1ms) + " ms");
}

void Cluster::strike(Mark kind, sim::NodeIndex victim) {
  const bool at_process = kind <= Mark::kill_driver;
  if (at_process && world.stopped_alone(victim)) {
    world.beside(victim, [&](sim::Env<Packet>& env) { agent(victim)->strike_process(env, kind); });
    return;
  }
  world.with(victim, [&](sim::Env<Packet>& env) {
    switch (kind) {
      case Mark::kill_worker:
      case Mark::kill_actor_worker:
      case Mark::kill_starting_worker:
      case Mark::kill_blocked_worker:
      case Mark::kill_driver:
        // When no process of the wanted kind exists, an ordinary worker dies instead.
        if (!agent(victim)->strike_process(env, kind) && kind != Mark::kill_driver)
          agent(victim)->strike_process(env, Mark::kill_worker);
        break;
      case Mark::talk_dropped: agent(victim)->strike_talk(env); break;
      default: agent(victim)->strike_report(env);
    }
  });
}

/// Kills control soon after a message to it: while the message is on its way, in a commit or half
/// processed.
void Cluster::moment() {
  if (aims()) end_control(Duration(aim_.below(aim_.chance(0.5) ? 3'000'000 : 60'000'000)));
}

bool Cluster::aims() {
  constexpr std::uint64_t kMost = 4;
  if (!world.faulting() || plan.aim <= 0 || aimed_ >= kMost || !aim_.chance(plan.aim)) return false;
  return tuning_.muted.count(2'000'000 + aimed_++) == 0;
}

void Cluster::end_control(Duration after) {
  world.at(world.now() - Time{} + after, [this] {
    if (!world.faulting() || !world.alive(0)) return;
    truth.mark(Mark::kill_control_aimed);
    if (aim_.chance(0.3))
      world.crash(0);
    else
      world.kill(0);
  });
}

/// Cuts the power of control's machine during a write. Nothing or a part of the write is on the
/// disk then.
void Cluster::commit_begins(Duration takes) {
  constexpr std::uint64_t kMost = 2;
  if (!world.faulting() || power_cuts_ >= kMost || !power_.chance(plan.power_cuts)) return;
  if (tuning_.muted.count(3'000'000 + power_cuts_++) != 0) return;
  const Duration after(power_.below(static_cast<std::uint64_t>(takes.count())));
  world.at(world.now() - Time{} + after, [this] {
    if (world.faulting() && world.alive(0)) world.crash(0);
  });
}

/// Delays the StopActorAt message to its node and then kills control. All other nodes learn that
/// the actor is over, and the actor's own node does not.
void Cluster::stop_is_told(NodeId node) {
  if (!aims()) return;
  const Duration by = 100ms + Duration(aim_.below(300'000'000));
  world.slow_down(0, static_cast<sim::NodeIndex>(node.low), by, by);
  end_control(10ms + Duration(aim_.below(60'000'000)));
}

/// Kills the node that asked for the spawn, before control knows whether an earlier control has
/// made the actor.
void Cluster::spawn_waits(NodeId maker) {
  if (!world.faulting() || plan.theme == Theme::control_dies || !aim_.chance(plan.maker_kills))
    return;
  const auto index = static_cast<sim::NodeIndex>(maker.low);
  world.at(world.now() - Time{} + Duration(aim_.below(3'000'000)), [this, maker, index] {
    if (!world.faulting() || is_gone(maker)) return;
    truth.mark(Mark::kill_maker_aimed);
    world.kill(index);
  });
}

/// Delays the news of an actor's death to the other nodes, but not to control.
void Cluster::slow_news(sim::NodeIndex from) {
  if (!world.faulting() || !aim_.chance(plan.slow_news)) return;
  truth.mark(Mark::slow_news_of_death);
  const Duration by = 20ms + Duration(aim_.below(300'000'000));
  for (sim::NodeIndex to = 1; to < plan.machines; ++to)
    if (to != from) world.slow_down(from, to, 2 * by, by);
}

// --- the truth about control

bool Cluster::next_life_waits(sim::NodeIndex at) {
  truth.mark(Mark::next_life_waited);
  if (!world.faulting()) return false;
  const Duration by = 100ms + Duration(aim_.below(400'000'000));
  world.slow_down(at, 0, by, by);
  return true;
}

bool Cluster::actor_lives(ActorId actor, std::uint64_t newest) {
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (world.alive(i) && agent(i)->has_process_of(actor, newest)) return true;
  return false;
}

std::string Cluster::outlived() {
  std::string text;
  for (const auto& [node, lives] : truth.killed_lives) {
    if (is_gone(node)) continue;
    for (const auto& [actor, life] : lives)
      if (actor_lives(actor, life))
        text += " a life of actor " + std::to_string(actor.low) + " that node " +
                std::to_string(node.low) + " had killed";
  }
  for (const auto& [actor, refused] : truth.refused)
    if (!is_gone(refused.maker) && actor_lives(actor))
      text += " actor " + std::to_string(actor.low) + ", which was refused to its maker";
  return text;
}

bool Cluster::lives_beside(ActorId actor, sim::NodeIndex but) {
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (i != but && world.stopped_alone(i) && agent(i)->has_process_of(actor)) return true;
  return false;
}

bool Cluster::is_gone(NodeId node) {
  const auto index = static_cast<sim::NodeIndex>(node.low);
  return !world.alive(index) || agent(index)->id() != node;
}

/// A node that is declared dead must have fenced itself, even when it is stopped or cut off.
void Cluster::declared_dead(NodeId node) {
  dead_.insert(node);
  if (!plan.standstills.empty())
    truth.fail("a node is declared dead that stood still together with control");
  if (is_gone(node)) return;
  ++truth.node_deaths;  // its actors are lost now, even if its agent lives on
  const auto index = static_cast<sim::NodeIndex>(node.low);
  if (may_serve(index)) truth.fail("a node that may still serve is declared dead");
  if (agent(index)->serves_until() > world.up_time_of(index))
    truth.fail("processes of a node that is declared dead would serve if its agent did not run");
  expect_exit(node, agent(static_cast<sim::NodeIndex>(node.low))->has_roster());
}

/// Another node takes `node` for dead.
void Cluster::taken_for_dead(NodeId node) {
  const auto index = static_cast<sim::NodeIndex>(node.low);
  if (!is_gone(node) && may_serve(index))
    truth.fail("a node that may still serve is taken for dead");
}

bool Cluster::may_serve(sim::NodeIndex i) {
  return agent(i)->may_serve(world.clock_of(i), world.up_time_of(i));
}

/// All other nodes know that a node of `dead_` is dead, so it must not become a member again.
void Cluster::taken_in(NodeId node) {
  if (dead_.count(node) != 0) truth.fail("a node that was declared dead is taken in as a new one");
}

/// Fails the run when a node that was declared dead does not end itself in time. The limits are:
/// - 3 s for a node that runs. A stopped node exits one heartbeat after it resumes, or 2.5 s later
///   if its connection has closed.
/// - 12 s awake for a node whose machine has slept. It exits when control tells it, or after 10 s.
/// - A node that does not know the roster waits until a control reaches it, and shortly longer.
void Cluster::expect_exit(NodeId node, bool had_roster) {
  world.at(world.now() - Time{} + 3s, [this, node, had_roster] {
    const auto index = static_cast<sim::NodeIndex>(node.low);
    if (is_gone(node)) return;
    if (world.paused(index) || world.now() < world.resumed_at(index) + 3s)
      return expect_exit(node, had_roster);
    if (world.now() < awake_from_[index] + 12s) return expect_exit(node, had_roster);
    const bool has_roster = agent(index)->has_roster();
    const bool waits = !has_roster && world.now() - Time{} < plan.faults_for + 15s;
    if (waits || (has_roster && !had_roster)) return expect_exit(node, has_roster);
    truth.fail("a node that was declared dead lives on");
  });
}

/// Neither the absence of control nor a standstill of all machines is a reason to end: no other
/// fault strikes in such plans.
void Cluster::ends_itself(const std::string& why) {
  if (!plan.standstills.empty())
    truth.fail("a node that stood still together with control ends: " + why);
  if (plan.away_at > Duration{}) truth.fail("a node to which nothing was done ends: " + why);
}

void Cluster::acknowledged(const control::Service& service, ActorId actor) {
  const auto spec = service.actors().spec(actor);
  if (spec && spec->detached) truth.acknowledged.emplace(actor, spec->name);
}

void Cluster::check_acknowledged(const control::Service& service, bool) {
  for (const auto& [actor, name] : truth.acknowledged) {
    const auto refused = truth.refused.find(actor);
    if (truth.killed.count(actor) != 0 || (refused != truth.refused.end() && !refused->second.made))
      continue;
    const auto location = service.actors().find(actor);
    if (!location) return truth.fail("an acknowledged detached actor is not known any more");
    if (location->state == control::ActorState::dead)
      return truth.fail("an acknowledged detached actor is dead, and nobody killed it");
  }
  const std::size_t kept = plan.old_jobs == 0 ? control::JobOptions().ended_kept : plan.old_jobs;
  for (const JobId job : truth.acknowledged_jobs)
    if (truth.acknowledged_jobs.size() <= kept && service.jobs().find(job) == nullptr)
      return truth.fail("an acknowledged job is not known any more");
  const std::vector<control::JobRecord> jobs = service.jobs().list();
  const auto ended = std::count_if(jobs.begin(), jobs.end(), [](const control::JobRecord& job) {
    return job.state != control::JobState::running;
  });
  if (static_cast<std::size_t>(ended) > kept) truth.fail("control keeps more jobs than it is to");
  for (const JobId job : truth.ended_jobs)
    if (service.jobs().is_running(job)) return truth.fail("a job that has ended runs again");
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

/// Ends detached actors once all drivers are gone, since these actors outlive their jobs.
void Cluster::end_detached() {
  if (world.now() < next_end_) return;
  next_end_ = world.now() + 2s;
  for (const auto& [spec, location] : control()->service()->actors().list()) {
    if (!spec.detached || location.state == control::ActorState::dead) continue;
    const auto refused = truth.refused.find(spec.id);
    if (refused != truth.refused.end() && !is_gone(refused->second.maker))
      continue;  // its living maker ends it
    truth.killed.insert(spec.id);
    const ActorId id = spec.id;
    world.with(1, [&](sim::Env<Packet>& env) { agent(1)->end_actor(env, id); });
  }
}

/// Control must place a waiting actor within 20 ms of a change that gives it room. The check
/// allows 1 s.
void Cluster::check_placing(const control::Service& service) {
  if (!service.has_room_for_waiting())
    room_since_.reset();
  else if (!room_since_)
    room_since_ = world.now();
  else if (world.now() - *room_since_ > 1s)
    truth.fail("an actor waits at control while a node has room for it");
}

/// Describes what control keeps at the end: waiting actors, nodes that it takes for busy, and
/// records of actors. Empty when nothing is left.
std::string Cluster::left_at_control() {
  std::string text;
  const control::Service& service = *control()->service();
  if (service.waiting_actors() > 0) text += " actors wait at control";
  for (const scheduling::NodeView& node : service.view().nodes) {
    if (!node.accepts) text += " control sends nothing new to " + node.name;
    if (node.free != node.total) text += " control takes something of " + node.name + " for taken";
  }
  return text + control()->left_in_store();
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
  check_placing(*control()->service());
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (!world.alive(i) || !agent(i)->registered() || !agent(i)->drivers_done()) return false;
  if (!outlived().empty()) return false;
  end_detached();
  for (sim::NodeIndex i = 1; i < plan.machines; ++i)
    if (!agent(i)->left_over().empty()) return false;
  return left_at_control().empty();
}

std::string Cluster::why_not_done() {
  std::string text;
  text +=
      !world.alive(0) || control()->service() == nullptr ? " control is dead;" : left_at_control();
  for (sim::NodeIndex i = 1; i < plan.machines; ++i) {
    text += " node " + std::to_string(i) + ":";
    if (!world.alive(i)) {
      text += " dead;";
      continue;
    }
    if (!agent(i)->registered()) text += " not registered;";
    text += agent(i)->why_busy() + agent(i)->left_over() + ";";
  }
  return text + outlived();
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

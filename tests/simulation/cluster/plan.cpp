/// Computes the plan of a cluster from a seed, and leaves out what a replay turns off.
#include "tests/simulation/cluster/cluster.hpp"

#include <algorithm>

namespace troupe::sim::cluster {

using namespace std::chrono_literals;

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

/// Makes a schedule brief: as many calls as it needs to count, and the same faults in less time.
static void shorten(Plan& plan, Random random) {
  plan.workload.actions = 6 + random.below(12);
  plan.workload.fewest_actions = 4;
  plan.workload.least_calls = 102;
  plan.workload.between = plan.workload.between / 2;
  std::erase_if(plan.drivers, [&](sim::NodeIndex i) { return i != 1 && random.chance(0.4); });
  plan.faults.between_events = plan.faults.between_events / 4;
  plan.faults_for = plan.faults_for / 4;
  plan.between_strikes = plan.between_strikes / 3;
}

/// Adapts a plan to its theme. Most schedules have some of every fault; the others concentrate on
/// one.
static void set_theme(Plan& plan, Random& random) {
  const auto strike = [&](Mark kind) -> double& {
    return plan.strikes[static_cast<std::size_t>(kind)];
  };
  switch (plan.theme) {
    case Theme::any: return;
    case Theme::control_dies:  // no other machine dies, so its agents know all that control lost
      plan.aim = 0.05 + random.uniform() * 0.3;
      for (const Fault fault : {Fault::kill, Fault::crash, Fault::kill_many, Fault::restart_fast,
                                Fault::pause, Fault::isolate, Fault::partition_one_way,
                                Fault::partition_two_way, Fault::partition_rolling})
        plan.faults.weight[static_cast<std::size_t>(fault)] = 0;
      plan.faults.longest_down = 3s;
      strike(Mark::kill_actor_worker) = 1;
      strike(Mark::kill_worker) = 0.5;
      plan.between_strikes = 1ms * (200 + random.below(1000));
      plan.workload.actors = plan.workload.names = plan.workload.lingers = true;
      plan.workload.kills = 12;
      return;
    case Theme::talks_break:
      strike(Mark::talk_dropped) = 2;
      plan.between_strikes = 1ms * (200 + random.below(1000));
      plan.workload.lingers = true;
      return;
    case Theme::long_cut:  // one node is cut off for longer than it and control wait
      plan.drivers.insert(plan.machines > 4 ? 3 : 2);
      plan.cut_at = 1ms * (1000 + random.below(3000));
      plan.cut_for = 1ms * (12'000 + random.below(4000));
      plan.faults_for = plan.cut_at + plan.cut_for + 500ms;
      plan.workload.actors = plan.workload.names = plan.workload.lingers = true;
      return;
    case Theme::long_stop:  // an agent stops for longer than that; its processes run on
      for (sim::NodeIndex i = 1; i < plan.machines; ++i) plan.drivers.insert(i);
      plan.stop_at = 1ms * (1000 + random.below(3000));
      plan.stop_for = 1ms * (11'000 + random.below(4000));
      plan.faults_for = plan.stop_at + plan.stop_for + 500ms;
      for (const Fault fault : {Fault::kill, Fault::crash, Fault::kill_many, Fault::restart_fast,
                                Fault::pause, Fault::isolate, Fault::partition_one_way,
                                Fault::partition_two_way, Fault::partition_rolling})
        plan.faults.weight[static_cast<std::size_t>(fault)] = 0;
      strike(Mark::kill_driver) = strike(Mark::kill_actor_worker) = 0;
      plan.workload.actors = plan.workload.names = plan.workload.lingers = true;
      plan.workload.shares = true;
      return;
  }
}

/// Adds one standstill of all machines, sometimes two. All other reasons for a node to end are
/// left out. Lost and refused frames are left out too, since the first message after a standstill
/// must arrive within one heartbeat.
static void add_standstills(Plan& plan, Random& random) {
  Duration at = 1ms * (300 + random.below(4000));
  for (int n = random.chance(0.3) ? 2 : 1; n > 0; --n) {
    const Duration length = 1ms * (2000 + random.below(random.chance(0.1) ? 88'000 : 18'000));
    plan.standstills.emplace_back(at, length);
    at += length + 1ms * (100 + random.below(4000));
  }
  plan.faults_for = at + 1s;
  for (std::size_t i = 0; i < fault_kinds; ++i)
    if (static_cast<Fault>(i) != Fault::clock_jump) plan.faults.weight[i] = 0;
  plan.strikes[static_cast<std::size_t>(Mark::talk_dropped)] = 0;
  plan.aim = plan.power_cuts = plan.maker_kills = 0;
  plan.faults.drop = plan.faults.buggify = 0;
  plan.between_stops = {};
}

/// Returns limits under which few transfers run at a time and unused connections close soon.
static agent::PlanOptions small_transfers(Random& random) {
  agent::PlanOptions options;
  options.link_objects = 1 + random.below(2);
  options.link_bytes = 12 << 10;
  options.node_bytes = (1 + random.below(2)) << 20;
  options.all_bytes = (1 + random.below(3)) << 20;
  options.idle = 1ms * (1 + random.below(200));
  return options;
}

Plan Plan::of(std::uint64_t seed, const Tuning& tuning) {
  Random random(seed ^ 0x636c7573746572ULL);
  const auto is_off = [&](std::string_view name) {
    return tuning.off.count(std::string(name)) != 0;
  };
  const auto some = [&](double chance, double most) {
    return random.chance(chance) ? random.uniform() * most : 0.0;
  };
  Plan plan;
  plan.machines = 4 + random.below(3);  // control and 3 to 5 nodes
  const double dice = random.uniform();
  plan.theme = dice < 0.25   ? Theme::control_dies
               : dice < 0.40 ? Theme::talks_break
               : dice < 0.48 ? Theme::long_cut
               : dice < 0.52 ? Theme::long_stop
                             : Theme::any;
  for (sim::NodeIndex i = 1; i < plan.machines; ++i) {
    if (i == 1 || random.chance(0.4)) plan.drivers.insert(i);
    plan.cpus.push_back(static_cast<double>(1 + random.below(3)));
  }
  plan.workload.actions = plan.workload.fewest_actions = 20 + random.below(40);
  plan.workload.between = 1ms * (20 + random.below(200));
  plan.workload.actors = random.chance(0.85);
  plan.workload.nested = random.chance(0.8);
  plan.workload.large = random.chance(0.8);
  plan.workload.bulk = random.chance(0.6);
  plan.workload.throws = random.chance(0.7);
  plan.workload.names = random.chance(0.7);
  plan.workload.slow_tasks = some(0.3, 0.1);
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
  if (calm < 0.25) plan.faults.weight = {};  // only faults of single messages
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
  plan.carry_window = random.chance(0.15) ? 4 + 4 * random.below(3) : wire::kCarryWindow;
  plan.fan = 1 + random.below(2);
  plan.workload.lingers = random.chance(0.5);
  plan.workload.kills = random.chance(0.3) ? 12 : 4;
  plan.aim = some(0.3, 0.3);
  plan.idle_kills = some(0.3, 0.3);
  plan.slow_news = some(0.3, 0.5);
  Random in_flight(seed ^ 0x6769667473ULL);
  if (calm >= 0.15 && in_flight.chance(0.3)) plan.in_flight_kills = in_flight.uniform() * 0.5;
  Random makers(seed ^ 0x6d616b657273ULL);
  if (calm >= 0.15 && makers.chance(0.3)) plan.maker_kills = makers.uniform();
  Random power(seed ^ 0x706f776572ULL);
  if (calm >= 0.15 && power.chance(0.25)) plan.power_cuts = 0.02 + power.uniform() * 0.2;
  Random stops(seed ^ 0x73746f70ULL);
  if (calm >= 0.15 && stops.chance(0.15)) plan.between_stops = 1ms * (300 + stops.below(3000));
  Random moves(seed ^ 0x6d6f766573ULL);
  if (moves.chance(0.3) && !is_off("transfers_small")) plan.transfers = small_transfers(moves);
  // Most schedules are brief. The others last long enough for slow paths.
  Random brief(seed ^ 0x6272696566ULL);
  if (brief.chance(0.93) && !is_off("brief")) shorten(plan, brief);
  set_theme(plan, random);
  Random away(seed ^ 0x61776179ULL);
  if (plan.theme == Theme::control_dies && away.chance(0.25) && !is_off("control_away")) {
    // Control falls silent once, when all nodes know each other, for longer than nodes wait for
    // it.
    plan.aim = plan.power_cuts = 0;
    plan.faults.buggify = 0;
    plan.between_stops = {};
    for (const Fault fault :
         {Fault::lost_unsynced, Fault::torn_write, Fault::disk_full, Fault::slow_disk,
          Fault::slow_route, Fault::connection_drop, Fault::connection_flap})
      plan.faults.weight[static_cast<std::size_t>(fault)] = 0;
    plan.away_at = 1ms * (2500 + away.below(2000));
    plan.faults.longest_down = 45s;
    plan.faults_for = plan.away_at + 12s + 1ms * away.below(8000);
  }
  Random still(seed ^ 0x616c6c7374696c6cULL);
  if (plan.theme == Theme::any && still.chance(0.12) && !is_off("all_stopped"))
    add_standstills(plan, still);
  Random old(seed ^ 0x6a6f6273ULL);
  if (old.chance(0.3)) plan.old_jobs = 16;
  Random rests(seed ^ 0x7265737473ULL);
  if (rests.chance(0.3) && !is_off("restarts_apart"))
    plan.restarts_apart = 1ms * (500 + rests.below(4500));
  plan.late_passes = random.chance(0.2);
  plan.late_rings = random.chance(0.3);
  const bool breaks = plan.theme == Theme::talks_break;
  plan.small_backlog = random.chance(breaks ? 0.5 : 0.1);
  plan.small_window = random.chance(breaks ? 0.6 : 0.2);
  plan.ring_capacity = random.chance(0.2) ? 1 + random.below(4) : 32;
  if (random.chance(0.2)) plan.slow_node = 1 + random.below(plan.machines - 1);
  if (tuning.most_actions < plan.workload.actions) {
    plan.workload.actions = plan.workload.fewest_actions = tuning.most_actions;
    plan.workload.least_calls = 0;
  }

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
  if (is_off("carry_window_small")) plan.carry_window = wire::kCarryWindow;
  if (is_off("kill_control_aimed")) plan.aim = 0;
  if (is_off("kill_maker_aimed")) plan.maker_kills = 0;
  if (is_off("commit_torn")) plan.power_cuts = 0;
  if (is_off("kill_idle_at_request")) plan.idle_kills = 0;
  if (is_off("killed_in_a_frame")) plan.in_flight_kills = 0;
  if (is_off("slow_news_of_death")) plan.slow_news = 0;
  if (is_off("long_cut")) plan.cut_at = {};
  if (is_off("agent_stopped")) plan.between_stops = {};
  if (is_off("agent_stopped_long")) plan.stop_for = {};
  if (is_off("machine_slept")) plan.sleeps = 0;
  if (is_off("node_slow")) plan.slow_node = 0;
  if (is_off("old_jobs")) plan.old_jobs = 0;
  if (is_off("lingers")) plan.workload.lingers = false;
  if (is_off("actors")) plan.workload.actors = false;
  if (is_off("nested")) plan.workload.nested = false;
  if (is_off("large")) plan.workload.large = false;
  if (is_off("bulk")) plan.workload.bulk = false;
  if (is_off("throws")) plan.workload.throws = false;
  if (is_off("names")) plan.workload.names = false;
  if (is_off("seats")) plan.workload.seats = false;
  if (is_off("drivers")) plan.drivers = {1};
  return plan;
}

}  // namespace troupe::sim::cluster

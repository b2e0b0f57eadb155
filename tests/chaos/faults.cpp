// Faults of processes and of the network between them. Each function returns whether the fault
// took effect.
#include "tests/chaos/chaos.hpp"

#include <dirent.h>
#include <unistd.h>
#include <algorithm>
#include <thread>

namespace chaos {

using namespace std::chrono_literals;

const std::vector<Chaos::Kind>& Chaos::all_kinds() {
  static const std::vector<Kind> kinds = {
      {"worker_killed", &Chaos::worker_killed, false, false},
      {"worker_crashed", &Chaos::worker_crashed, false, false},
      {"actor_killed", &Chaos::actor_killed, false, false},
      {"zygote_killed", &Chaos::zygote_killed, false, false},
      {"agent_killed", &Chaos::agent_killed, true, false},
      {"launcher_killed", &Chaos::launcher_killed, true, false},
      {"home_killed", &Chaos::home_killed, true, false},
      {"control_killed", &Chaos::control_killed, false, false},
      {"agent_and_control", &Chaos::agent_and_control_killed, true, false},
      {"driver_killed", &Chaos::driver_killed, false, false},
      {"worker_stopped", &Chaos::worker_stopped, false, false},
      {"agent_stopped", &Chaos::agent_stopped, true, false},
      {"agent_stopped_long", &Chaos::agent_stopped_long, true, false},
      {"node_stopped", &Chaos::node_stopped, true, false},
      {"control_stopped", &Chaos::control_stopped, false, false},
      {"control_stopped_long", &Chaos::control_stopped_long, false, false},
      {"node_slow", &Chaos::node_slow, true, false},
      {"partition", &Chaos::partition, true, false},
      {"partition_long", &Chaos::partition_long, true, false},
      {"partition_pair", &Chaos::partition_pair, true, false},
      {"partition_one_way", &Chaos::partition_one_way, true, false},
      {"control_cut_off", &Chaos::control_cut_off, false, false},
      {"delayed", &Chaos::delayed, false, false},
      {"connections_cut", &Chaos::connections_cut, false, false},
      {"clock_jumped", &Chaos::clock_jumped, false, false},
      {"machines_slept", &Chaos::machines_slept, false, false},
      {"cpu_starved", &Chaos::cpu_starved, false, false},
      {"memory_hogged", &Chaos::memory_hogged, false, false},
      {"disk_filled", &Chaos::disk_filled, false, false},
      {"data_damaged", &Chaos::data_damaged, false, true},
      {"everything_killed", &Chaos::everything_killed, false, true},
      {"everything_ended", &Chaos::everything_ended, false, true},
  };
  return kinds;
}

// --- victims

std::vector<int> Chaos::workers(bool of_actors) {
  driver_->listen();
  std::vector<int> found;
  for (const Process& process : descendants()) {
    if (process.name != "troupe-worker") continue;
    const bool hosts = std::any_of(driver_->actors.begin(), driver_->actors.end(),
                                   [&](const auto& actor) { return actor.second == process.pid; });
    if (hosts == of_actors) found.push_back(process.pid);
  }
  return found;
}

/// Returns a random node that is not the driver's own. With `head_too`, the head's other node may
/// be chosen.
Node* Chaos::victim(bool head_too) {
  std::vector<Node*> found;
  // The head's launcher ends the cluster with the last of its two nodes, so one of them must
  // stay.
  const auto of_head =
      std::count_if(cluster_->nodes().begin(), cluster_->nodes().end(), [&](const Node& node) {
        return node.launcher == cluster_->launcher() && is_alive(node.agent);
      });
  for (Node& node : cluster_->nodes())
    if (&node != &cluster_->nodes().front() && is_alive(node.agent) &&
        (node.launcher != cluster_->launcher() || (head_too && of_head > 1)))
      found.push_back(&node);
  if (found.empty()) return nullptr;
  Node* node = found[random_() % found.size()];
  node->stays = false;
  return node;
}

// --- kills

namespace {
/// On a busy machine, a killed process may take seconds to die. If it were counted as alive, its
/// death would later look like a node that ended by itself.
constexpr auto kDies = 20s;
}  // namespace

Chaos::Effect Chaos::kill_now(int pid, const std::string& name) {
  if (look_at(pid).name != name) return std::nullopt;
  const Injected injected;
  if (!hit(pid) || !within(kDies, [&] { return !is_alive(pid); })) return std::nullopt;
  return injected;
}

Chaos::Effect Chaos::worker_killed() {
  const auto found = workers(false);
  return found.empty() ? std::nullopt : kill_now(found[random_() % found.size()], "troupe-worker");
}

Chaos::Effect Chaos::worker_crashed() {
  const auto found = workers(random_() % 2 == 0);
  if (found.empty()) return std::nullopt;
  const Injected injected;
  const int pid = found[random_() % found.size()];
  if (!hit(pid, SIGSEGV) || !within(kDies, [&] { return !is_alive(pid); })) return std::nullopt;
  return injected;
}

Chaos::Effect Chaos::actor_killed() {
  const auto found = workers(true);
  return found.empty() ? std::nullopt : kill_now(found[random_() % found.size()], "troupe-worker");
}

Chaos::Effect Chaos::zygote_killed() {
  std::vector<int> found;
  for (const Process& process : descendants())
    if (process.name == "troupe-zygote") found.push_back(process.pid);
  return found.empty() ? std::nullopt : kill_now(found[random_() % found.size()], "troupe-zygote");
}

Chaos::Effect Chaos::agent_killed() {
  const Node* node = victim(true);
  return node == nullptr ? std::nullopt : kill_now(node->agent, "troupe-agent");
}

Chaos::Effect Chaos::launcher_killed() {
  const Node* node = victim();
  if (node == nullptr) return std::nullopt;
  const Injected injected;
  const int agent = node->agent;
  if (!hit(node->launcher) || !within(kDies, [&] { return !is_alive(agent); })) return std::nullopt;
  return injected;
}

/// Kills the driver's own node. All its waits must end at once, and another driver must find what
/// is left.
Chaos::Effect Chaos::home_killed() {
  Node& home = cluster_->nodes().front();
  // The head's launcher ends the cluster with the last of its two nodes, so one of them must
  // stay.
  const auto of_head = std::count_if(
      cluster_->nodes().begin(), cluster_->nodes().end(),
      [&](const Node& n) { return n.launcher == cluster_->launcher() && is_alive(n.agent); });
  if (home.launcher == cluster_->launcher() && of_head < 2) return std::nullopt;
  home.stays = false;
  auto injected = kill_now(home.agent, "troupe-agent");
  if (!injected) return std::nullopt;
  const bool told = within(10s, [&] {
    driver_->listen();
    return driver_->home.has_value();
  });
  if (!told || wait_for(driver_->pid(), 10s) != 42)
    bad("home_killed", "hung", "the driver did not end when its node did");
  else if (*driver_->home > 2000)
    bad("home_killed", "hung", "waits went on for longer than 2 s without their node");
  cluster_->forget_dead();
  // New drivers enter at a node that joined, since such a node has a cluster file of its own.
  auto& nodes = cluster_->nodes();
  const auto other = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.launcher != cluster_->launcher();
  });
  if (other == nodes.end()) return std::nullopt;
  std::rotate(nodes.begin(), other, other + 1);
  injected->new_driver = true;
  return injected;
}

Chaos::Effect Chaos::control_killed() {
  // A launcher ends after five ends of control in a row without 30 s of service, so a new cluster
  // starts before that.
  auto& kills = control_kills_;
  const double now = ms_since(begun_);
  if (!kills.empty() && now - kills.back() > 30'000) kills.clear();
  if (kills.size() >= 5) {
    faults_ = 1'000;  // ends the round
    return std::nullopt;
  }
  kills.push_back(now);
  return kill_now(cluster_->control(), "troupe-control");
}

Chaos::Effect Chaos::agent_and_control_killed() {
  const Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  const int agent = node->agent;
  auto injected = control_killed();
  if (!injected || !kill_now(agent, "troupe-agent")) return std::nullopt;
  return injected;
}

Chaos::Effect Chaos::driver_killed() {
  const auto injected = kill_now(driver_->pid(), "chaos");
  if (!injected) return std::nullopt;
  driver_->listen();
  // The job's workers and actors must end. Detached actors of this driver and of earlier ones
  // stay.
  const std::size_t detached = 6 * static_cast<std::size_t>(drivers_of_round_);
  std::size_t left = 0;
  const bool freed = within(5s, [&] {
    left = workers(false).size() + workers(true).size();
    return left <= detached;
  });
  if (!freed)
    bad("driver_killed", "lost",
        std::to_string(left) + " workers are left 5 s after their driver's death");
  Injected after = *injected;
  after.new_driver = true;
  return after;
}

// --- stops

/// Stops these processes for `time`. Recovery counts from the stop with `from_begin`, and else
/// from the end.
Chaos::Effect Chaos::stop_for(const std::vector<int>& pids, std::chrono::milliseconds time,
                              bool from_begin) {
  Injected injected;
  std::vector<int> stopped;
  for (const int pid : pids)
    if (hit(pid, SIGSTOP) && within(1s, [&] {
          const char state = look_at(pid).state;
          return state == 'T' || state == 0;
        }))
      stopped.push_back(pid);
  sleep(time);
  for (const int pid : stopped) hit(pid, SIGCONT);
  if (stopped.empty()) return std::nullopt;
  if (!from_begin) injected.at = Clock::now();
  return injected;
}

Chaos::Effect Chaos::worker_stopped() {
  const auto found = workers(random_() % 2 == 0);
  if (found.empty()) return std::nullopt;
  return stop_for({found[random_() % found.size()]},
                  std::chrono::milliseconds(200 + random_() % 2000), false);
}

Chaos::Effect Chaos::agent_stopped() {
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;  // it must survive
  return stop_for({node->agent}, std::chrono::milliseconds(500 + random_() % 5000), false);
}

/// Stops an agent for longer than a silent node stays a member. It must end after it resumes.
Chaos::Effect Chaos::agent_stopped_long() {
  const Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  const int agent = node->agent;
  const auto injected =
      stop_for({agent}, std::chrono::milliseconds(12'500 + random_() % 2000), true);
  if (injected && !within(5s, [&] { return !is_alive(agent); }))
    bad("agent_stopped_long", "wrong", "a node that was declared dead lives on after it woke");
  return injected;
}

Chaos::Effect Chaos::node_stopped() {
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  std::vector<int> pids{node->agent};
  for (const Process& process : descendants())
    if (std::count(pids.begin(), pids.end(), process.parent) != 0) pids.push_back(process.pid);
  for (const Process& process : descendants())
    if (process.name == "troupe-worker" &&
        std::count(pids.begin(), pids.end(), process.parent) != 0)
      pids.push_back(process.pid);
  return stop_for(pids, std::chrono::milliseconds(500 + random_() % 4000), false);
}

Chaos::Effect Chaos::control_stopped() {
  const int control = cluster_->control();
  if (control == 0) return std::nullopt;
  return stop_for({control}, std::chrono::milliseconds(500 + random_() % 4000), false);
}

/// While control is stopped, the nodes carry on. When it resumes, it must declare no node dead.
Chaos::Effect Chaos::control_stopped_long() {
  const int control = cluster_->control();
  if (control == 0) return std::nullopt;
  return stop_for({control}, std::chrono::milliseconds(13'000 + random_() % 3000), false);
}

/// Lets an agent run for only 5% of the time.
Chaos::Effect Chaos::node_slow() {
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  Injected injected;
  for (int i = 0; i < 40; ++i) {
    if (!hit(node->agent, SIGSTOP)) return std::nullopt;
    sleep(95ms);
    hit(node->agent, SIGCONT);
    sleep(5ms);
  }
  injected.at = Clock::now();
  return injected;
}

// --- the network

/// Keeps the proxy's present rules for `time`, then heals the network.
Chaos::Effect Chaos::hold_for(std::chrono::milliseconds time, bool from_begin) {
  Injected injected;
  const auto before = proxy_->effect();
  sleep(time);
  const bool took_effect = proxy_->effect() != before;
  proxy_->heal();
  if (!took_effect) return std::nullopt;
  if (!from_begin) injected.at = Clock::now();
  return injected;
}

namespace {
constexpr const char* kNoProxy = "nothing can be preloaded into this build";
}  // namespace

Chaos::Effect Chaos::partition() {
  if (!proxy_) return rows_["partition"].skipped = kNoProxy, std::nullopt;
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  proxy_->hold(node->agent, true);
  return hold_for(std::chrono::milliseconds(500 + random_() % 5000), false);
}

Chaos::Effect Chaos::partition_long() {
  if (!proxy_) return rows_["partition_long"].skipped = kNoProxy, std::nullopt;
  const Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  const int agent = node->agent;
  proxy_->hold(agent, true);
  const Injected begun;
  within(14s, [&] {
    driver_->listen();
    return !is_alive(agent);
  });
  const double lived = ms_since(begun.at);
  if (is_alive(agent) || lived < 8000)
    bad("partition_long", "wrong",
        "a node that was cut off lived for " + std::to_string(lived) + " ms");
  if (!hold_for(10ms, true) && is_alive(agent)) return std::nullopt;
  return begun;
}

Chaos::Effect Chaos::partition_pair() {
  if (!proxy_) return rows_["partition_pair"].skipped = kNoProxy, std::nullopt;
  Node* a = victim(true);
  Node* b = victim(true);
  if (a == nullptr || b == nullptr) return std::nullopt;
  if (a == b) b = &cluster_->nodes().front();
  a->stays = b->stays = true;
  proxy_->hold_between(a->agent, b->agent, true);
  return hold_for(std::chrono::milliseconds(1000 + random_() % 12'000), false);
}

Chaos::Effect Chaos::partition_one_way() {
  if (!proxy_) return rows_["partition_one_way"].skipped = kNoProxy, std::nullopt;
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  proxy_->hold(node->agent, true, true);
  return hold_for(std::chrono::milliseconds(500 + random_() % 5000), false);
}

/// Cuts control off from all nodes, which must carry on as without a control.
Chaos::Effect Chaos::control_cut_off() {
  if (!proxy_) return rows_["control_cut_off"].skipped = kNoProxy, std::nullopt;
  const int control = cluster_->control();
  if (control == 0) return std::nullopt;
  proxy_->hold(control, true);
  return hold_for(std::chrono::milliseconds(2000 + random_() % 12'000), false);
}

Chaos::Effect Chaos::delayed() {
  if (!proxy_) return rows_["delayed"].skipped = kNoProxy, std::nullopt;
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  proxy_->delay(node->agent, static_cast<int>(20 + random_() % 400));
  return hold_for(2s, false);
}

Chaos::Effect Chaos::connections_cut() {
  if (!proxy_) return rows_["connections_cut"].skipped = kNoProxy, std::nullopt;
  Node* node = victim(true);
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  Injected injected;
  const auto before = proxy_->effect();
  for (int i = 0; i < 3; ++i) {
    proxy_->cut(node->agent);
    sleep(50ms);
  }
  if (proxy_->effect() == before) return std::nullopt;
  injected.at = Clock::now();
  return injected;
}

// --- time

Chaos::Effect Chaos::clock_jumped() {
  if (!proxy_) return rows_["clock_jumped"].skipped = kNoProxy, std::nullopt;
  Injected injected;
  const auto before = page_->clock_reads.load();
  for (const std::int64_t hours : {1, -1, 24, -24}) {
    page_->clock_offset_ns = hours * 3'600'000'000'000;
    sleep(300ms);
  }
  page_->clock_offset_ns = 0;
  if (page_->clock_reads == before) return std::nullopt;
  injected.at = Clock::now();
  return injected;
}

/// Plays machines that sleep: the clock that counts sleep jumps ahead, and the monotonic clock
/// does not.
Chaos::Effect Chaos::machines_slept() {
  if (!proxy_) return rows_["machines_slept"].skipped = kNoProxy, std::nullopt;
  const auto before = page_->sleep_reads.load();
  for (const std::int64_t minutes : {1, 600}) {
    page_->slept_ns += minutes * 60'000'000'000;
    sleep(300ms);
  }
  if (page_->sleep_reads == before) return std::nullopt;
  Injected injected;
  injected.at = Clock::now();
  return injected;
}

Chaos::Effect Chaos::cpu_starved() {
  std::vector<int> hogs;
  const auto count = 4 * std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  for (long i = 0; i < count; ++i) {
    const pid_t pid = fork_child();
    if (pid == 0)
      for (;;) (void)::getppid();
    hogs.push_back(pid);
  }
  Injected injected;
  sleep(3s);
  double spent = 0;
  for (const int pid : hogs) {
    spent += cpu_ms(pid);
    hit(pid);
    wait_for(pid, 2s);
  }
  injected.at = Clock::now();
  if (spent < 1000) return std::nullopt;
  return injected;
}

}  // namespace chaos

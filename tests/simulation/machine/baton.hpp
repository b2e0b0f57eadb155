/// The baton of a simulated machine. Each thread of each simulated process is a thread of the
/// system. One runs at a time. At each wait the baton passes to a thread that the seed chooses
/// among those that can go on, and virtual time passes between turns.
///
///     Baton& baton = *new Baton(seed, plan, on_broken, false);
///     Process& agent = baton.process("agent");
///     baton.start(agent, "main", [&] { … });
///     baton.run();                                  // until every process has ended
///
/// Descriptors and shared memory are the system's. A process that is killed loses its threads
/// where they wait: they never get the baton again. No destructor runs and no message leaves. So a
/// Baton is never destroyed either: threads wait in it until the harness's child ends.
#pragma once

#include "tests/simulation/kernel/trace.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/client/current_engine.hpp"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::sim::machine {

enum class Fault : std::uint8_t {
  kill,           ///< of a worker where its threads wait
  kill_at_frame,  ///< of a worker before or after it publishes a frame
  halt,           ///< SIGSTOP of a worker, and SIGCONT later
  late_start,     ///< of a worker, after the zygote got its order
  failed_start,   ///< fork() fails
  short_memory,   ///< the machine lacks memory for a while
  slow,           ///< a process gets little of the CPU
  kill_agent,     ///< the whole node ends; a driver of it gets errors
  kill_zygote,    ///< its workers die with it, and a private node ends
  count_
};
constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::count_);
const char* name_of(Fault fault) noexcept;

/// The faults of one schedule. A turn is one passing of the baton.
struct Plan {
  struct Stroke {
    std::uint64_t turn = 0;
    Fault fault = Fault::kill;
    std::uint64_t argument = 0;  ///< nanoseconds, or the node
  };
  std::vector<Stroke> strokes;  ///< in the order of their turns
  /// Which frame that a worker publishes kills it; even: before, odd: after.
  std::vector<std::uint64_t> deadly_frames;
  double late_starts = 0, failed_starts = 0;  ///< shares of the orders to the zygote
  double slow_processes = 0;
  bool one_cpu = false;  ///< of each process
  std::size_t nodes = 1;
  std::uint64_t most_actions = ~std::uint64_t{0};  ///< of the driver

  /// A private node ends with its zygote. A node of a cluster starts another one.
  bool ends_driver(const Stroke& stroke) const noexcept {
    return nodes == 1 || (stroke.fault == Fault::kill_agent && stroke.argument == kDriversNode);
  }
  static constexpr std::size_t kDriversNode = 1;
};

struct Process {
  int number = 0;
  std::size_t node = 0;  ///< its machine
  const char* name = "";
  pid_t pid = 0;
  std::uint64_t token = 0;  ///< a worker's
  bool ended = false;
  bool is_up = false;   ///< a zygote: it has said that it is ready
  int status = 0;       ///< as waitpid gives it, once it has ended
  Time halted_until{};  ///< Time::max(): until SIGCONT
  int slowness = 1;
  Fd socket;                                  ///< another descriptor of its local socket
  std::vector<Fd> handles;                    ///< written when it ends
  const void* parent = nullptr;               ///< address on which its zygote waits
  std::deque<std::string> heard;              ///< its last three messages
  client::ClientEngine* engine = nullptr;     ///< while another process runs
  client::ClientEngine* unvisited = nullptr;  ///< the same
};

struct Thread {
  Process* process = nullptr;
  const char* role = "";
  std::uint64_t id = 0;  ///< process and number in it: the same in each run of a seed
  std::function<void()> body;
  sem_t go{};
  pthread_t handle{};
  bool done = false, waits = false, woken = false;
  std::vector<pollfd> fds;
  const void* address = nullptr;
  Time until{}, since{};
  const char* why = "";
};

class Baton {
 public:
  /// `broken` is called on any thread when a promise is broken, and does not return.
  Baton(std::uint64_t seed, Plan plan, std::function<void(const std::string&)> broken,
        bool verbose);
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;

  /// Ends the schedule of current().
  static void leave() noexcept { current_ = nullptr; }
  /// The baton of this process, and the thread that runs; null outside a schedule.
  static Baton* current() noexcept { return current_; }
  static Thread* self() noexcept { return self_; }
  /// The baton if the calling thread belongs to a simulated process; else null.
  static Baton* here() noexcept { return self_ == nullptr ? nullptr : current_; }

  /// Makes a process on the machine of the calling one.
  Process& process(const char* name);
  Process* find(pid_t pid) noexcept;
  /// Starts a thread of a process. It runs when it gets the baton.
  Thread& start(Process& process, const char* role, std::function<void()> body);
  /// Passes the baton until all threads have ended or wait for nothing that comes.
  void run();

  /// Calls `what` at that time, on the thread that then has the baton. It must not wait.
  void at(Time time, std::function<void()> what) { events_.emplace(time, std::move(what)); }
  /// `told` is called when a process has ended. It must not wait.
  void when_ended(std::function<void(const Process&)> told) { ended_ = std::move(told); }
  /// Strokes follow from now on, by turns from now on. Without this call: from the first turn on.
  void arm() noexcept { armed_at_ = turns_; }
  void disarm() noexcept { armed_at_ = ~std::uint64_t{0}; }

  // for the running thread; each passes the baton
  int wait(std::span<pollfd> fds, Time until, const char* why, const void* address = nullptr);
  /// Waits for wake(); returns whether it came.
  bool wait_on(const void* address, Time until, const char* why);
  void wake(const void* address, bool all) noexcept;
  void sleep(Duration time, const char* why) { wait({}, now_ + time, why); }
  /// Ends the calling process. Never returns.
  [[noreturn]] void exit(int status);

  /// Ends a process at once. Returns also if it is the calling one, which then loses the baton at
  /// its next wait.
  void kill(Process& process, int status);
  void halt(Process& process, Time until) noexcept { process.halted_until = until; }
  /// A named point: may kill the calling process, and then does not return.
  void point(bool after);
  /// Stops all faults.
  void calm() noexcept { calm_ = true; }
  bool strikes(double share, Fault fault) noexcept;
  void note(Fault fault) noexcept { ++struck_[static_cast<std::size_t>(fault)]; }

  [[noreturn]] void fail(const std::string& why);
  std::string report() const;
  /// Sends a signal to the thread that has the baton. Any thread.
  void interrupt(int signal) const noexcept;
  void heard(const char* message);
  void log(const char* format, ...) __attribute__((format(printf, 2, 3)));

  Time now() const noexcept { return now_; }
  std::uint64_t turns() const noexcept { return turns_; }
  const std::array<std::uint64_t, kFaults>& struck() const noexcept { return struck_; }
  /// The driver's node ends: errors need no other reason.
  bool node_is_gone() const noexcept { return node_gone_; }
  bool memory_is_short() const noexcept { return now_ < short_until_; }
  Random& random() noexcept { return random_; }
  Trace& trace() noexcept { return trace_; }
  const Plan& plan() const noexcept { return plan_; }
  std::list<Process>& processes() noexcept { return processes_; }

 private:
  Thread* choose();
  void pass(Thread* from);
  void hand_to(Thread& next) noexcept;
  void strike();
  Process* some_worker();
  Process* find(std::string_view name, std::size_t node) noexcept;

  inline static Baton* current_ = nullptr;
  inline static thread_local Thread* self_ = nullptr;
  Random random_, faults_;
  Plan plan_;
  const std::function<void(const std::string&)> broken_;
  const bool verbose_;
  std::list<Process> processes_;
  std::list<Thread> threads_;
  std::vector<Thread*> ready_;
  std::vector<pollfd> polled_;
  std::vector<std::pair<Thread*, std::size_t>> pollers_;
  std::multimap<Time, std::function<void()>> events_;
  std::function<void(const Process&)> ended_;
  Process* running_ = nullptr;
  pthread_t holder_{};  ///< the thread that has the baton
  sem_t over_{};
  Time now_{std::chrono::seconds(1000)};
  Time short_until_{};
  std::uint64_t turns_ = 0, frames_ = 0, armed_at_ = 0;
  std::size_t next_stroke_ = 0, next_frame_ = 0;
  bool calm_ = false, node_gone_ = false;
  std::array<std::uint64_t, kFaults> struck_{};
  Trace trace_;
};

}  // namespace troupe::sim::machine

#include "tests/simulation/machine/baton.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;

/// A schedule that takes longer hangs.
constexpr Duration kMost = 600s;
constexpr std::uint64_t kMostTurns = 400'000;
constexpr std::size_t kStack = 4 << 20;
constexpr pid_t kFirstPid = 5'000'000;  // beyond those of the system

int look(std::span<pollfd> fds) noexcept {
  const timespec none{};
  return static_cast<int>(syscall(SYS_ppoll, fds.data(), fds.size(), &none, nullptr, 0));
}

void take(sem_t& baton) noexcept {
  while (sem_wait(&baton) != 0) {
  }
}

std::string text_of(Duration time) {
  char text[48];
  std::snprintf(text, sizeof text, "%.6f s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

const char* name_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::kill: return "kill";
    case Fault::kill_at_frame: return "kill_at_frame";
    case Fault::halt: return "halt";
    case Fault::late_start: return "late_start";
    case Fault::failed_start: return "failed_start";
    case Fault::short_memory: return "short_memory";
    case Fault::slow: return "slow";
    case Fault::kill_agent: return "kill_agent";
    case Fault::kill_zygote: return "kill_zygote";
    case Fault::count_: break;
  }
  return "";
}

Baton::Baton(std::uint64_t seed, Plan plan, std::function<void(const std::string&)> broken,
             bool verbose)
    : random_(seed ^ 0x6261746f6eULL),
      faults_(seed ^ 0x66617531ULL),
      plan_(std::move(plan)),
      broken_(std::move(broken)),
      verbose_(verbose) {
  sem_init(&over_, 0, 0);
  current_ = this;
}

Process& Baton::process(const char* name) {
  Process& fresh = processes_.emplace_back();
  fresh.number = static_cast<int>(processes_.size());
  fresh.name = name;
  if (self_ != nullptr) fresh.node = self_->process->node;
  fresh.pid = kFirstPid + fresh.number;
  if (strikes(plan_.slow_processes, Fault::slow))
    fresh.slowness = 1 + static_cast<int>(random_.below(200));
  return fresh;
}

Process* Baton::find(pid_t pid) noexcept {
  for (Process& process : processes_)
    if (process.pid == pid) return &process;
  return nullptr;
}

Process* Baton::find(std::string_view name, std::size_t node) noexcept {
  for (Process& process : processes_)
    if (process.name == name && process.node == node && !process.ended) return &process;
  return nullptr;
}

Thread& Baton::start(Process& process, const char* role, std::function<void()> body) {
  Thread& thread = threads_.emplace_back();
  thread.process = &process;
  thread.role = role;
  thread.id = static_cast<std::uint64_t>(process.number) << 8 |
              static_cast<std::uint64_t>(std::count_if(
                  threads_.begin(), threads_.end(),
                  [&process](const Thread& other) { return other.process == &process; }));
  thread.body = std::move(body);
  sem_init(&thread.go, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const auto main = [](void* argument) -> void* {
    auto& mine = *static_cast<Thread*>(argument);
    take(mine.go);
    self_ = &mine;
    mine.body();
    mine.done = true;
    Baton* baton = current_;
    baton->pass(nullptr);
    self_ = nullptr;
    return nullptr;
  };
  if (pthread_create(&thread.handle, &attributes, main, &thread) != 0)
    fail("no thread can be started");
  pthread_attr_destroy(&attributes);
  return thread;
}

void Baton::run() {
  pass(nullptr);
  take(over_);
}

Thread* Baton::choose() {
  for (;;) {
    strike();
    while (!events_.empty() && events_.begin()->first <= now_)
      events_.extract(events_.begin()).mapped()();
    ready_.clear();
    polled_.clear();
    pollers_.clear();
    Time next = events_.empty() ? Time::max() : events_.begin()->first;
    bool any = false;
    for (Thread& thread : threads_) {
      if (thread.done || thread.process->ended) continue;
      any = true;
      if (thread.process->halted_until > now_) {
        next = std::min(next, thread.process->halted_until);
      } else if (!thread.waits || thread.woken || thread.until <= now_) {
        ready_.push_back(&thread);
      } else {
        next = std::min(next, thread.until);
        if (thread.fds.empty()) continue;
        pollers_.emplace_back(&thread, polled_.size());
        polled_.insert(polled_.end(), thread.fds.begin(), thread.fds.end());
      }
    }
    if (!any) return nullptr;
    if (!polled_.empty() && look(polled_) > 0)
      for (const auto& [thread, first] : pollers_)
        if (std::any_of(polled_.begin() + static_cast<std::ptrdiff_t>(first),
                        polled_.begin() + static_cast<std::ptrdiff_t>(first + thread->fds.size()),
                        [](const pollfd& entry) { return entry.revents != 0; }))
          ready_.push_back(thread);
    if (ready_.empty()) {
      if (next == Time::max()) fail("nothing can go on");
      now_ = std::max(now_, next);
      if (now_.time_since_epoch() > kMost + 1000s) fail("the schedule does not end");
      continue;
    }
    std::sort(ready_.begin(), ready_.end(),
              [](const Thread* a, const Thread* b) { return a->id < b->id; });
    Thread* chosen = ready_[random_.below(ready_.size())];
    if (chosen->process->slowness > 1 && ready_.size() > 1 &&
        random_.below(static_cast<std::uint64_t>(chosen->process->slowness)) != 0)
      chosen = ready_[random_.below(ready_.size())];
    now_ += Duration(300 + static_cast<std::int64_t>(random_.below(1500)));
    if (++turns_ > kMostTurns) fail("the schedule takes too many turns");
    trace_.mix(chosen->id).mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    return chosen;
  }
}

void Baton::hand_to(Thread& next) noexcept {
  if (running_ != next.process) {
    auto& engine = client::current_engine;
    if (running_ != nullptr) {
      running_->engine = engine.any.load();
      running_->unvisited = engine.unvisited.load();
    }
    running_ = next.process;
    engine.any.store(running_->engine);
    engine.unvisited.store(running_->unvisited);
  }
  next.waits = false;
  holder_ = next.handle;
  sem_post(&next.go);
}

/// Passes the baton on. Returns when `from` gets it back. null: the calling thread has ended.
void Baton::pass(Thread* from) {
  Thread* next = choose();
  if (next == nullptr) {
    sem_post(&over_);
  } else if (next == from) {
    from->waits = false;
    return;
  } else {
    hand_to(*next);
  }
  if (from != nullptr) take(from->go);
}

int Baton::wait(std::span<pollfd> fds, Time until, const char* why, const void* address) {
  Thread& thread = *self_;
  thread.fds.assign(fds.begin(), fds.end());
  thread.until = until;
  thread.since = now_;
  thread.why = why;
  thread.address = address;
  thread.woken = false;
  thread.waits = true;
  pass(&thread);
  thread.address = nullptr;
  return fds.empty() ? 0 : look(fds);
}

bool Baton::wait_on(const void* address, Time until, const char* why) {
  wait({}, until, why, address);
  return self_->woken;
}

void Baton::wake(const void* address, bool all) noexcept {
  for (Thread& thread : threads_) {
    if (!thread.waits || thread.woken || thread.address != address) continue;
    thread.woken = true;
    if (!all) return;
  }
}

void Baton::exit(int status) {
  kill(*self_->process, status);
  for (;;) pass(self_);
}

void Baton::kill(Process& process, int status) {
  if (process.ended) return;
  log("%s %d ends with status %d", process.name, process.number, status);
  process.ended = true;
  process.status = status;
  process.halted_until = {};
  trace_.mix(static_cast<std::uint64_t>(process.number)).mix(static_cast<std::uint64_t>(status));
  if (process.socket) ::shutdown(process.socket.get(), SHUT_RDWR);
  process.socket.reset();
  if (status == SIGKILL)
    for (Process& other : processes_) {
      if (process.name == std::string_view("zygote") && other.parent == process.parent &&
          other.token != 0)
        kill(other, SIGKILL);
      if (process.name == std::string_view("agent") && other.node == process.node && other.socket)
        ::shutdown(other.socket.get(), SHUT_RDWR);
    }
  for (const Fd& handle : process.handles) eventfd_write(handle.get(), 1);
  if (process.parent != nullptr) wake(process.parent, true);
  if (ended_) ended_(process);
}

Process* Baton::some_worker() {
  std::vector<Process*> workers;
  for (Process& process : processes_)
    if (process.token != 0 && !process.ended) workers.push_back(&process);
  return workers.empty() ? nullptr : workers[faults_.below(workers.size())];
}

void Baton::strike() {
  while (!calm_ && next_stroke_ < plan_.strokes.size() && turns_ >= armed_at_ &&
         plan_.strokes[next_stroke_].turn <= turns_ - armed_at_) {
    const Plan::Stroke& stroke = plan_.strokes[next_stroke_++];
    const bool of_node = stroke.fault == Fault::kill_agent || stroke.fault == Fault::kill_zygote;
    const char* role = stroke.fault == Fault::kill_agent ? "agent" : "zygote";
    Process* victim = of_node ? find(role, stroke.argument) : some_worker();
    if (stroke.fault == Fault::short_memory) {
      short_until_ = now_ + Duration(static_cast<std::int64_t>(stroke.argument));
    } else if (victim == nullptr) {
      continue;
    } else if (stroke.fault == Fault::kill || of_node) {
      // A job ends when no worker of it can start beside its driver.
      const bool ends_job = stroke.fault == Fault::kill_zygote && !victim->is_up &&
                            victim->node == Plan::kDriversNode;
      node_gone_ = node_gone_ || ends_job || (of_node && plan_.ends_driver(stroke));
      kill(*victim, SIGKILL);
    } else if (victim->halted_until <= now_) {
      halt(*victim, now_ + Duration(static_cast<std::int64_t>(stroke.argument)));
    }
    log("%s", name_of(stroke.fault));
    note(stroke.fault);
  }
}

void Baton::point(bool after) {
  if (calm_ || self_->process->token == 0 || next_frame_ >= plan_.deadly_frames.size()) return;
  const std::uint64_t number = 2 * frames_ + (after ? 1 : 0);
  if (after) ++frames_;
  if (number < plan_.deadly_frames[next_frame_]) return;
  ++next_frame_;
  note(Fault::kill_at_frame);
  log("killed %s a frame", after ? "after" : "before");
  exit(SIGKILL);
}

bool Baton::strikes(double share, Fault fault) noexcept {
  if (calm_ || share <= 0 || !faults_.chance(share)) return false;
  note(fault);
  return true;
}

void Baton::fail(const std::string& why) {
  broken_(why + "\n" + report());
  std::abort();
}

void Baton::interrupt(int signal) const noexcept {
  pthread_kill(holder_, signal);
}

std::string Baton::report() const {
  std::string text = "at " + text_of(now_.time_since_epoch()) + ", turn " + std::to_string(turns_);
  for (const Process& process : processes_) {
    if (process.ended) continue;
    text += "\n  " + std::string(process.name) + " " + std::to_string(process.number) + ":";
    for (const std::string& message : process.heard) text += " " + message;
    if (process.halted_until > now_) text += " (halted)";
    for (const Thread& thread : threads_)
      if (thread.process == &process && !thread.done)
        text += "\n    " + std::string(thread.role) +
                (thread.waits
                     ? " waits: " + std::string(thread.why) + ", since " +
                           text_of(thread.since.time_since_epoch()) + ", until " +
                           (thread.until == Time::max() ? "for ever"
                                                        : text_of(thread.until.time_since_epoch()))
                     : " runs, since " + std::string(thread.why));
  }
  return text;
}

void Baton::heard(const char* message) {
  std::deque<std::string>& last = self_->process->heard;
  last.emplace_back(message);
  if (last.size() > 3) last.pop_front();
  log("hears %s", message);
}

void Baton::log(const char* format, ...) {
  if (!verbose_) return;
  std::fprintf(
      stderr, "%.6f %s %d: ", std::chrono::duration<double>(now_.time_since_epoch()).count() - 1000,
      self_ == nullptr ? "machine" : self_->process->name,
      self_ == nullptr ? 0 : self_->process->number);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
}

}  // namespace troupe::sim::machine

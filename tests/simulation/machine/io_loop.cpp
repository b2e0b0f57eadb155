/// client::IoLoop over the baton: two threads take turns as on a machine, and nobody spins. The
/// thread that leads reads the rings and sleeps on the doorbell. It wakes the others when what they
/// wait for has come.
#include "troupe/runtime/client/io_loop.hpp"

#include "tests/simulation/machine/baton.hpp"
#include "troupe/runtime/base/machine.hpp"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

namespace troupe::client {
namespace {

using sim::machine::Baton;
using sim::machine::Thread;

/// A thread that waits while another one leads.
struct Follower {
  const IoLoop* loop = nullptr;
  const std::function<bool()>* done = nullptr;
};
std::list<Follower> followers;
std::map<const IoLoop*, Thread*> io_threads;

void wake_satisfied(const IoLoop* loop) {
  for (const Follower& follower : followers)
    if (follower.loop == loop && (*follower.done)()) Baton::current()->wake(&follower, true);
}

}  // namespace

IoLoop::IoLoop(Host& host, ring::Doorbell& bell, EngineLock& lock)
    : host_(host), bell_(bell), lock_(lock), spin_(worth_spinning() ? 1 : 0) {}
IoLoop::~IoLoop() = default;

bool IoLoop::worth_spinning() const {
  return affine_cpus() > 1;
}

bool IoLoop::wait(Guard& guard, const std::function<bool()>& done, Time deadline, Time) {
  for (;;) {
    if (done()) return true;
    if (stopping_) return false;
    const Time now = waited_until_ = steady_now();
    if (!leading_) return lead(guard, done, deadline, now);
    if (now >= deadline) return false;
    if (io_on_bell_) {  // the I/O thread only sleeps: look for what has arrived
      set_timer(host_.drain(now));
      wake_satisfied(this);
      if (done()) return true;
    }
    const auto mine = followers.insert(followers.end(), Follower{this, &done});
    guard.unlock();
    if (host_.has_leftovers()) bell_.wake_sleeper();
    Baton::current()->wait_on(&*mine, deadline, "a value, while another thread reads the rings");
    guard.lock();
    followers.erase(mine);
  }
}

bool IoLoop::lead(Guard& guard, const std::function<bool()>& done, Time deadline, Time now) {
  leading_ = true;
  const auto io = io_threads.find(this);
  const bool is_io = io != io_threads.end() && io->second == Baton::self();
  bool result = false;
  for (;;) {
    Time timer = host_.drain(now);
    if (is_io) timer = std::min(timer, host_.aside(now));
    wake_satisfied(this);
    result = done();
    if (result || stopping_ || now >= deadline) break;
    away_ = true;
    io_on_bell_ = is_io;
    sleeps_until_ = std::min(timer, deadline);
    guard.unlock();
    if (!bell_.pending() && !host_.has_leftovers() && bell_.prepare_sleep()) {
      if (!stopping_ && !called_ && !host_.has_leftovers()) {
        const bool open = leader_wait_set_.reads;
        short events = host_.wants_read() ? POLLIN : 0;
        if (host_.wants_write()) events |= POLLOUT;
        pollfd fds[] = {{bell_.event_fd(), POLLIN, 0}, {open ? host_.socket_fd() : -1, events, 0}};
        Baton::current()->wait(fds, std::min(timer, deadline), "its doorbell");
        if (open && fds[1].revents != 0) host_.socket_ready();
      }
      bell_.finish_sleep();
    }
    guard.lock();
    away_ = io_on_bell_ = false;
    called_ = false;
    now = steady_now();
  }
  leading_ = false;
  waited_until_ = now;
  // The next leader: a thread that waits with a value in mind, before the I/O thread.
  for (const Follower& follower : followers)
    if (follower.loop == this) {
      Baton::current()->wake(&follower, true);
      break;
    }
  return result;
}

void IoLoop::start() {
  Baton* baton = Baton::current();
  io_threads[this] = &baton->start(*Baton::self()->process, "io", [this] {
    Guard guard(lock_);
    wait(guard, [this] { return stopping_.load(); }, Time::max());
  });
}

void IoLoop::stop() {
  {
    const Guard guard(lock_);
    stopping_ = true;
    for (const Follower& follower : followers)
      if (follower.loop == this) Baton::current()->wake(&follower, true);
  }
  bell_.wake_sleeper();
  bell_.wake();
  const auto io = io_threads.extract(this);
  while (!io.empty() && !io.mapped()->done)
    Baton::current()->sleep(std::chrono::microseconds(50), "the end of the I/O thread");
}

void IoLoop::assist() {
  ++assists_;
  if ((leading_ && !io_on_bell_) || !bell_.pending() || stopping_) return;
  set_timer(host_.drain(steady_now()));
  wake_satisfied(this);
}

void IoLoop::forget_socket() noexcept {
  leader_wait_set_.reads = false;
}

bool IoLoop::left_to_others(bool, bool, Duration, Duration) noexcept {
  return false;
}

}  // namespace troupe::client

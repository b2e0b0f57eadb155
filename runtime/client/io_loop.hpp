/// Decides which thread reads the rings: the thread that waits does it itself, and the I/O thread
/// does it only while no other thread waits. Serves ClientEngine.
///
/// One thread at a time *leads*: it drains channels, spins briefly, then sleeps on the doorbell.
/// A thread in get() takes the lead, so that a reply reaches the caller without another thread.
/// The I/O thread leads while user code runs. After another thread has led, the I/O thread looks
/// at the doorbell only once a millisecond, so a loop of gets does not wake it each time.
///
///     io_loop.wait(lock, [&] { return entry.ready; }, deadline);
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/client/lock.hpp"
#include "troupe/runtime/ring/doorbell.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace troupe::client {

using Guard = std::unique_lock<EngineLock>;

class IoLoop {
 public:
  /// The engine's part of the loop. All functions run under the lock unless stated.
  class Host {
   public:
    virtual ~Host() = default;
    /// Handles everything that has arrived and every timer that is due; returns the next timer.
    virtual Time drain(Time now) = 0;
    /// The next timer as of now.
    virtual Time next_timer() const noexcept = 0;
    /// The second descriptor to sleep on, and what to do when it is readable. Called without the
    /// lock.
    virtual int socket_fd() const = 0;
    virtual bool wants_write() const = 0;
    /// False: nothing can be read now, so do not wake for it. Called without the lock.
    virtual bool wants_read() const { return true; }
    virtual void socket_ready() noexcept = 0;
    /// Whether another thread left work because the lock was taken. Called without the lock.
    virtual bool has_leftovers() const noexcept = 0;
    /// Called before the leader spins: the doorbell may watch the peer that spoke last. Returns
    /// whether a peer has spoken since the last call.
    virtual bool watch_peer() noexcept = 0;
    /// Whether the peer that spoke last was on another CPU than this thread when it last slept.
    virtual bool peer_elsewhere() const noexcept { return false; }
    /// Handles the watched peer's frames if nothing else has arrived. Returns false otherwise.
    virtual bool drain_watched(Time now) = 0;
    /// Occasional work, done only by the I/O thread while user code runs. Returns when to call it
    /// again.
    virtual Time aside(Time) noexcept { return Time::max(); }
  };

  IoLoop(Host& host, ring::Doorbell& bell, EngineLock& lock);
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;
  /// Precondition: stop() was called.
  ~IoLoop();

  /// Starts the I/O thread.
  void start();
  /// Ends the I/O thread and every wait (they return false).
  void stop();

  /// Waits until the predicate (checked under the lock) holds, or the deadline. Returns the
  /// predicate's last value. `now`: the time, if the caller knows it.
  bool wait(Guard& guard, const std::function<bool()>& done, Time deadline, Time now = {});
  /// When wait() last returned to a thread that had to wait, exact to some microseconds. Under
  /// the lock.
  Time waited_until() const noexcept { return waited_until_; }
  /// Handles what has arrived, for a thread that sends much and waits for nothing: the I/O thread
  /// then need not wake. Costs one look at the doorbell when nothing has arrived. Under the lock.
  void assist();
  /// Makes waiting threads check their predicates again. Under the lock.
  void notify() {
    if (followers_ > 0) changed_.notify_all();
    if (away_ && !called_.exchange(true, std::memory_order_seq_cst)) bell_.wake_sleeper();
  }
  /// Tells the loop of a timer that is earlier than what drain() returned last. Under the lock.
  void set_timer(Time timer) {
    if (timer >= sleeps_until_) return;
    sleeps_until_ = timer;
    if (io_on_bell_)
      bell_.wake_sleeper();
    else if (away_ && !called_.exchange(true, std::memory_order_seq_cst))
      bell_.wake_sleeper();
  }
  /// The host's descriptor is of no more use: no thread sleeps on it from here on. Any thread.
  void forget_socket() noexcept;
  /// Whether this process and the peer that spoke last share one CPU. Under the lock.
  bool shares_cpu() const noexcept { return spin_ == Duration(0); }
  /// Returns whether the I/O thread leaves the doorbell to other threads: one leads, led a moment
  /// ago, or has assisted lately. (assist() handles no timers when it finds nothing, so an
  /// overdue timer takes the doorbell back.)
  static bool left_to_others(bool leads, bool assisted, Duration since_led,
                             Duration overdue) noexcept;

 private:
  /// What a thread sleeps on, registered once: the doorbell's event, edge-triggered so that it
  /// need not be emptied, and the socket.
  struct WaitSet {
    Fd set;
    bool reads = true;    ///< wake when the socket can be read
    bool writes = false;  ///< wake when it can be written
  };
  struct Following;
  void io_loop();
  /// Wakes the leader when another thread has left work, since this thread had the lock. Called
  /// after an unlock by a thread that does not do that work itself.
  void wake_for_leftovers() noexcept {
    if (host_.has_leftovers()) bell_.wake_sleeper();
  }
  bool lead(Guard& guard, const std::function<bool()>& done, Time deadline, Time now);
  WaitSet make_wait_set() const;
  void watch_socket(WaitSet& wait_set, int operation, bool reads, bool writes) const;
  bool sleep_until(WaitSet& wait_set, Time until);
  void take_over_from_io();
  bool worth_spinning() const;
  void hand_to_io();

  Host& host_;
  ring::Doorbell& bell_;
  EngineLock& lock_;
  Duration spin_;              ///< of the leader
  std::uint32_t sleeps_ = 0;   ///< of the leader
  std::uint32_t assists_ = 0;  ///< how often assist() was called; under the lock
  Fd kick_;                    ///< wakes the I/O thread out of either sleep
  WaitSet leader_wait_set_;
  WaitSet io_wait_set_;  ///< with the kick
  std::condition_variable_any changed_;
  int followers_ = 0;
  bool leading_ = false;  ///< a user thread leads; under the lock
  bool away_ = false;     ///< the leader spins or sleeps; under the lock
  /// The leader has something to check that no doorbell slot shows.
  std::atomic<bool> called_{false};
  Time led_since_{};  ///< when a user thread began to lead; under the lock
  Time waited_until_{};
  std::atomic<bool> stopping_{false};
  /// When the thread that sleeps, or is about to, drains again in any case. Under the lock.
  Time sleeps_until_ = Time::max();
  bool io_on_bell_ = false;  ///< the I/O thread sleeps on the doorbell (it leads); under the lock
  std::atomic<bool> io_idle_{
      false};  ///< the I/O thread sleeps without a timeout: kick it when leaving
  std::atomic<std::int64_t> last_led_{0};  ///< when a user thread last led, steady ns
  SignalMaskedThread io_;
};

}  // namespace troupe::client

/// Who looks at the doorbell: the thread that waits does it itself, and an I/O thread only when
/// nobody waits.
///
/// One thread at a time *leads*: it drains channels, spins briefly, then sleeps on the doorbell. A
/// thread in get() takes the lead, so that a reply goes from ring to caller without another thread.
/// The I/O thread leads while user code runs elsewhere; after somebody else has led it looks only
/// once a millisecond, so a loop of gets does not wake it each time.
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
  /// What the engine does for the I/O loop; all under the lock unless stated.
  class Host {
   public:
    virtual ~Host() = default;
    /// Handles everything that has arrived and every timer that is due; returns the next timer.
    virtual Time drain(Time now) = 0;
    /// The next timer as it is by now.
    virtual Time next_timer() const noexcept = 0;
    /// The other descriptor to sleep on, and what to do when it is readable. No lock.
    virtual int socket_fd() const = 0;
    virtual bool wants_write() const = 0;
    virtual void socket_ready() noexcept = 0;
    /// Work that another thread left because the lock was taken. No lock.
    virtual bool has_leftovers() const noexcept = 0;
    /// The leader is about to spin: the doorbell may watch the peer that spoke last. True: one has
    /// since the last time.
    virtual bool watch_peer() noexcept = 0;
    /// The peer that spoke last was on another CPU than this thread when it slept last.
    virtual bool peer_elsewhere() const noexcept { return false; }
    /// Handles what the watched peer has said, if nothing else has arrived; false: it has not.
    virtual bool drain_watched(Time now) = 0;
    /// What is done now and then by the I/O thread alone, while user code runs elsewhere; returns
    /// when again.
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
  /// When wait() last returned to a thread for which it had to wait, within some microseconds.
  /// Under the lock.
  Time waited_until() const noexcept { return waited_until_; }
  /// For a thread that sends much and waits for nothing: handles what has arrived, so that the I/O
  /// thread need not be woken for it. Under the lock. One look at the doorbell when nothing has.
  void assist();
  /// Something changed that a waiting thread may look at. Under the lock.
  void notify() {
    if (followers_ > 0) changed_.notify_all();
    if (away_ && !called_.exchange(true, std::memory_order_seq_cst)) bell_.nudge();
  }
  /// The host's next timer is earlier than what drain() returned last. Under the lock.
  void set_timer(Time timer) {
    if (timer >= sleeps_until_) return;
    sleeps_until_ = timer;
    if (io_on_bell_)
      bell_.nudge();
    else if (away_ && !called_.exchange(true, std::memory_order_seq_cst))
      bell_.nudge();
  }
  /// The host's descriptor has ended: nobody sleeps on it any more. Any thread.
  void forget_socket() noexcept;
  /// This process has one CPU, and so has the peer that spoke last, the same one. Under the lock.
  bool shares_cpu() const noexcept { return spin_ == Duration(0); }
  /// Whether the I/O thread leaves the doorbell to another that leads, did so a moment ago, or has
  /// assisted lately. (Who assists and finds nothing handles no timers, so not while one is
  /// overdue.)
  static bool left_to_others(bool leads, bool assisted, Duration since_led,
                             Duration overdue) noexcept;

 private:
  /// What a thread sleeps on, registered once: the doorbell's event by its edges, so that nobody
  /// has to empty it, and the socket.
  struct WaitSet {
    Fd set;
    bool writes = false;  ///< it is to wake up when the socket can be written, too
  };
  void io_loop();
  bool lead(Guard& guard, const std::function<bool()>& done, Time deadline, Time now);
  WaitSet make_wait_set() const;
  void watch_socket(WaitSet& wait_set, int operation, bool writes) const;
  bool sleep_until(WaitSet& wait_set, Time until);
  void take_over_from_io();
  bool worth_spinning() const;
  void hand_to_io();

  Host& host_;
  ring::Doorbell& bell_;
  EngineLock& lock_;
  Duration spin_;              ///< the leader's
  std::uint32_t sleeps_ = 0;   ///< the leader's
  std::uint32_t assists_ = 0;  ///< how often assist() was called; under the lock
  Fd kick_;                    ///< wakes the I/O thread out of either sleep
  WaitSet leader_wait_set_;
  WaitSet io_wait_set_;  ///< and the kick
  std::condition_variable_any changed_;
  int followers_ = 0;
  bool leading_ = false;             ///< a user thread leads; under the lock
  bool away_ = false;                ///< it spins or sleeps; under the lock
  std::atomic<bool> called_{false};  ///< and has something to look at that no slot says
  Time led_since_{};                 ///< when it began to; under the lock
  Time waited_until_{};
  std::atomic<bool> stopping_{false};
  /// For whoever sleeps, or is about to: when it drains again in any case; under the lock.
  Time sleeps_until_ = Time::max();
  bool io_on_bell_ = false;  ///< the I/O thread sleeps on the doorbell (it leads); under the lock
  std::atomic<bool> io_idle_{
      false};  ///< the I/O thread sleeps without a timeout: kick it when leaving
  std::atomic<std::int64_t> last_led_{0};  ///< when a user thread last led, steady ns
  SignalMaskedThread io_;
};

}  // namespace troupe::client

// Written against NCCL's documentation; nothing here has run on a device so far.
#include "troupe/actors/collective/nccl/internal/comms.hpp"

#include "troupe/actors/collective/nccl/internal/communicator.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/log.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

namespace troupe::collective::nccl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kWatch = milliseconds(2);         ///< between two polls by the watcher
constexpr Duration kAsk = milliseconds(1);           ///< between two checks of deadlines and errors
constexpr Duration kLook = milliseconds(50);         ///< between two checks for dead processes
constexpr Duration kDeathShows = milliseconds(200);  ///< from NCCL's error to the visible death
constexpr Duration kFinalize = std::chrono::seconds(2);
constexpr Duration kNap = microseconds(50);
constexpr int kSpins = 200;

bool is_error(Result result) noexcept {
  return result != kSuccess && result != kInProgress;
}

/// Waits a moment: yields in the first rounds, then sleeps.
void nap(int round) {
  if (round < kSpins)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(kNap);
}

}  // namespace

/// The reason why the group must end.
struct Comms::Trouble {
  Control* control = nullptr;  ///< null: there is none
  std::string nccl;            ///< an error of NCCL; empty: the group is over already
};

Comms::Comms(const Library& library, Duration abort_within)
    : nccl_(library), abort_within_(abort_within) {}

Comms::~Comms() {
  stop();
}

void Comms::stop() noexcept {
  {
    const std::lock_guard lock(calls_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (aborter_.joinable()) aborter_.join();
}

Entry& Comms::join(Control& control, const UniqueId& id, const Request& request) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(calls_);
    entry = &entries_.emplace_back(Entry{nullptr, &control});
  }
  call(*entry, request, [&] {
    Config config;
    return nccl_.init_rank_config(&entry->comm, control.size(), id, control.rank(), &config);
  });
  return *entry;
}

Entry* Comms::split(Entry& parent, const Request& request) {
  Entry* child = nullptr;
  {
    const std::lock_guard lock(calls_);
    child = &entries_.emplace_back(Entry{nullptr, parent.control});
  }
  const auto& members = request.members;
  const auto mine = std::find(members.begin(), members.end(), parent.control->rank());
  call(parent, request, [&] {
    return nccl_.split(parent.comm, request.color < 0 ? kNoColor : request.color,
                       static_cast<int>(mine - members.begin()), &child->comm, nullptr);
  });
  if (request.color >= 0) {
    call(*child, request, [] { return kSuccess; });
    return child;
  }
  const std::lock_guard lock(calls_);
  entries_.remove_if([&](const Entry& one) { return &one == child; });
  return nullptr;
}

void Comms::speak_for(Entry& entry, Control& control) {
  const std::lock_guard lock(calls_);
  entry.control = &control;
}

void Comms::call(Entry& entry, const Request& request, const std::function<Result()>& calls) {
  Control& control = *entry.control;
  const Time deadline =
      std::min(deadline_after(steady_now(), control.timeout()), request.must_end());
  Result result = kSuccess;
  {
    const std::lock_guard lock(calls_);
    if (!over_) result = calls();
  }
  if (is_error(result))
    fail(control, request, Code::cancelled,
         "NCCL on " + control.name_of_rank(control.rank()) + ": " + nccl_.error_text(result));
  await_ready(entry, request, deadline);
}

Result Comms::state_of(const Entry& entry) {
  const std::lock_guard lock(calls_);
  if (over_) return kSuccess;
  if (entry.comm == nullptr) return kInProgress;
  Result state = kSuccess;
  const Result asked = nccl_.async_error(entry.comm, &state);
  return asked == kSuccess ? state : asked;
}

void Comms::await_ready(Entry& entry, const Request& request, Time deadline) {
  Control& control = *entry.control;
  for (int round = 0;; ++round) {
    const Result state = state_of(entry);
    if (is_error(state))
      fail(control, request, Code::cancelled,
           "NCCL on " + control.name_of_rank(control.rank()) + ": " + nccl_.error_text(state));
    if (control.is_over() || (round % 1000 == 999 && control.check_ranks())) {
      control.check_ranks();  // other nodes may not know the end
      finish();
      raise(control.error_of(request.kind, control.sequence()));
    }
    if (state == kSuccess) return;
    if (steady_now() >= deadline)
      fail(control, request, Code::timed_out,
           "NCCL on " + control.name_of_rank(control.rank()) + " did not begin " +
               std::string(name_of(request.kind)) + control.late_words(deadline, request));
    nap(round);
  }
}

void Comms::fail(Control& control, const Request& request, Code code, const std::string& why) {
  if (code == Code::cancelled) {
    // NCCL may report a closed connection before the kernel shows the death of the process. Wait
    // for that, so that the error is WorkerDied and names the rank.
    const Time until = steady_now() + kDeathShows;
    while (!control.check_ranks() && steady_now() < until) std::this_thread::sleep_for(kNap);
  }
  control.end(code, why);
  finish();
  raise(control.error_of(request.kind, control.sequence()));
}

void Comms::add(Under under) {
  {
    const std::lock_guard lock(calls_);
    under_.push_back(std::move(under));
    if (!watcher_.joinable()) watcher_ = SignalMaskedThread("nccl-watch", [this] { watch(); });
  }
  changed_.notify_all();
  poll();
}

std::vector<std::shared_ptr<Flight>> Comms::flights_of(const NcclCommunicator& of) {
  std::vector<std::shared_ptr<Flight>> flights;
  const std::lock_guard lock(calls_);
  if (!over_) settle_done();
  for (const Under& under : under_)
    if (under.of == &of) flights.push_back(under.flight);
  return flights;
}

// The waits without a deadline end, because the watcher ends the group at an operation's limit.
void Comms::drain(const NcclCommunicator& of) {
  for (const auto& flight : flights_of(of)) await(*flight, Time::max());
}

bool Comms::drain_device(const NcclCommunicator& of) {
  const auto flights = flights_of(of);
  for (const auto& flight : flights)
    if (!flight->left_to_device.load(std::memory_order_acquire)) return false;
  for (const auto& flight : flights) await(*flight, Time::max());
  return true;
}

void Comms::lower(const Flight& last, Time to) {
  const std::lock_guard lock(calls_);
  const auto found = std::find_if(under_.begin(), under_.end(),
                                  [&](const Under& u) { return u.flight.get() == &last; });
  if (found == under_.end()) return;
  for (auto under = under_.begin(); under <= found; ++under)
    if (under->of == found->of) under->flight->lower(to);
}

void Comms::abort(const Flight& flight, std::string_view reason) noexcept {
  Control* control = nullptr;
  {
    const std::lock_guard lock(calls_);
    for (const Under& under : under_)
      if (under.flight.get() == &flight) control = &under.of->control();
  }
  if (control != nullptr) control->abort(reason);
}

bool Comms::await(const Flight& flight, Time until) noexcept {
  for (int round = 0; !flight.has_happened(); ++round) {
    const Time now = steady_now();
    if (now >= until) return flight.has_happened();
    poll();
    if (round < kSpins)
      std::this_thread::yield();
    else
      flight.park(std::min(until, now + kNap));
  }
  return true;
}

void Comms::watch() {
  std::unique_lock lock(calls_);
  while (!stopping_) {
    if (under_.empty())
      changed_.wait(lock);
    else
      changed_.wait_for(lock, kWatch);
    if (stopping_ || under_.empty()) continue;
    lock.unlock();
    poll();
    lock.lock();
  }
}

void Comms::poll() noexcept {
  Trouble trouble;
  {
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (!lock || over_) return;
    settle_done();
    trouble = find_trouble();
  }
  if (trouble.control == nullptr) return;
  if (!trouble.nccl.empty()) {
    const Time until = steady_now() + kDeathShows;
    while (!trouble.control->check_ranks() && steady_now() < until)
      std::this_thread::sleep_for(kNap);
    trouble.control->end(Code::cancelled, trouble.nccl);
  }
  trouble.control->check_ranks();  // other nodes may not know the end
  finish();
}

void Comms::settle_done() {
  // The operations of a communicator are settled in the order of its calls: one that is done waits
  // for an earlier one that is not.
  std::vector<const NcclCommunicator*> busy;
  std::erase_if(under_, [&](const Under& under) {
    if (std::find(busy.begin(), busy.end(), under.of) != busy.end()) return false;
    if (!under.flight->on_device.has_happened()) {
      busy.push_back(under.of);
      return false;
    }
    under.of->has_done(under);
    under.flight->settle({});
    return true;
  });
}

Comms::Trouble Comms::find_trouble() {
  Trouble trouble;
  const Time now = steady_now();
  if (under_.empty() || now < asked_ + kAsk) return trouble;
  asked_ = now;
  const bool looks = now >= looked_ + kLook;
  if (looks) looked_ = now;
  const Control* seen = nullptr;
  for (const Under& under : under_) {
    Control& control = under.of->control();
    if (looks && std::exchange(seen, &control) != &control) control.check_ranks();
    const Time limit = std::min(under.limit, under.flight->operation.must_end());
    if (now >= limit && !control.is_over()) end_late(under, limit);
    if (control.is_over()) trouble.control = &control;
  }
  if (trouble.control == nullptr) look_for_errors(trouble);
  return trouble;
}

void Comms::end_late(const Under& under, Time limit) {
  Control& control = under.of->control();
  const Request& request = under.flight->operation;
  control.end(Code::timed_out, "the device of " + control.name_of_rank(control.rank()) +
                                   " did not end " + std::string(name_of(request.kind)) + " #" +
                                   std::to_string(under.sequence) +
                                   control.late_words(limit, request));
}

void Comms::look_for_errors(Trouble& trouble) {
  for (const Entry& entry : entries_) {
    if (entry.comm == nullptr) continue;
    Result state = kSuccess;
    const Result asked = nccl_.async_error(entry.comm, &state);
    const Result result = is_error(asked) ? asked : state;
    if (!is_error(result)) continue;
    trouble.control = entry.control;
    trouble.nccl = "NCCL on " + entry.control->name_of_rank(entry.control->rank()) + ": " +
                   nccl_.error_text(result);
    return;
  }
}

void Comms::finish() noexcept {
  std::unique_lock lock(ending_);
  if (ended_) return;
  if (!aborter_.joinable())
    aborter_ = SignalMaskedThread("nccl-abort", [this] {
      abort_all();
      settle_all();
      const std::lock_guard last(ending_);
      ended_ = true;
      ended_changed_.notify_all();
    });
  if (!ended_changed_.wait_for(lock, abort_within_, [this] { return ended_; })) die();
}

void Comms::abort_all() noexcept {
  const std::lock_guard lock(calls_);
  over_ = true;
  for (Entry& entry : entries_)
    if (entry.comm != nullptr) static_cast<void>(nccl_.abort(std::exchange(entry.comm, nullptr)));
}

/// Settles all operations with the error of the group. It first waits until each has left the
/// device's queue, since until then the device may write its memory.
void Comms::settle_all() noexcept {
  std::vector<Under> all;
  {
    const std::lock_guard lock(calls_);
    all = std::move(under_);
    under_.clear();
  }
  for (const Under& under : all) under.flight->on_device.wait(Time::max());
  for (const Under& under : all)
    under.flight->settle(
        under.of->control().error_of(under.flight->operation.kind, under.sequence));
}

void Comms::die() const noexcept {
  log_line(
      "process %d ends itself: NCCL did not abort an operation within %lld ms, so the device still "
      "uses its memory",
      static_cast<int>(::getpid()),
      static_cast<long long>(std::chrono::duration_cast<milliseconds>(abort_within_).count()));
  flush_log();
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// Ends a communicator. ncclCommFinalize first lets NCCL end its work for other ranks. Then the
/// communicator is aborted, since ncclCommDestroy may wait for ranks that have not left.
void Comms::close(Entry& entry) {
  bool ends = false;
  {
    const std::lock_guard lock(calls_);
    if (over_ || entry.comm == nullptr) return;
    ends = !is_error(nccl_.finalize(entry.comm));
  }
  const Time deadline = deadline_after(steady_now(), std::min(abort_within_, kFinalize));
  for (int round = 0; ends && state_of(entry) == kInProgress && steady_now() < deadline; ++round)
    nap(round);
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  SignalMaskedThread helper("nccl-abort", [this, &entry, &ended] {
    {
      const std::lock_guard lock(calls_);
      if (entry.comm != nullptr) static_cast<void>(nccl_.abort(std::exchange(entry.comm, nullptr)));
    }
    ended.set_value();
  });
  if (end.wait_for(abort_within_) != std::future_status::ready) die();
  helper.join();
}

void Comms::leave(Entry& entry) {
  if (entry.control->is_over())
    finish();
  else
    close(entry);
  const std::lock_guard lock(calls_);
  entries_.remove_if([&](const Entry& one) { return &one == &entry; });
}

}  // namespace troupe::collective::nccl

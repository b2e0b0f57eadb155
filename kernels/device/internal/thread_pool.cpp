#include "troupe/kernels/device/internal/thread_pool.hpp"

#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::kernels::internal {
namespace {

thread_local bool inside_part = false;

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Waits until `word` differs from `old`, and returns its value. Spins at first, then sleeps.
int await_change(const std::atomic<int>& word, int old, Duration spin) noexcept {
  constexpr int kLooks = 64;  // loads of the word between two readings of the clock
  const Time until = steady_now() + spin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      const int now = word.load(std::memory_order_acquire);
      if (now != old) return now;
      relax();
    }
  } while (steady_now() < until);
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

/// Counts the CPUs that the calling thread may use; a large number if that is unknown.
int cpus_of_this_thread() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

/// The number of a call, its parts, and the next part to take, in one word. A thread takes a part
/// by a compare-exchange of the whole word. Hence a helper that wakes late cannot take a part of a
/// later call by mistake.
struct Ticket {
  std::uint64_t call = 0, parts = 0, next = 0;
  static Ticket of(std::uint64_t word) {
    return {word >> 32, word >> 16 & 0xffffu, word & 0xffffu};
  }
  std::uint64_t word() const { return call << 32 | parts << 16 | next; }
};

}  // namespace

struct ThreadPool::Crew {
  // The data of the present call. run() writes them before the release store of the ticket. Other
  // threads read them only while they hold a part that they took from the ticket (acquire).
  const Part* part = nullptr;
  std::int64_t n = 0, parts = 0;
  FloatMode mode = FloatMode::current();
  Duration spin = ThreadPool::kSpin;
  std::exception_ptr failure;
  std::mutex failing;

  // Each on a cache line of its own.
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<int> call{0};  // helpers wait for a new number; negative: they end
  alignas(64) std::atomic<int> done{0};  // parts that are done; the caller waits for all of them
  std::vector<SignalMaskedThread> helpers;

  void start(int count);
  void help() noexcept;
  void compute(std::int64_t index) noexcept;
  void take_parts(std::uint64_t of_call) noexcept;
  void run(std::int64_t all, std::int64_t pieces, const Part& f);
  void end() noexcept;
};

void ThreadPool::Crew::start(int count) {
  // With fewer CPUs than threads, a spinning thread would keep another one from computing.
  if (cpus_of_this_thread() <= count) spin = {};
  try {
    for (int i = 0; i < count; ++i) helpers.emplace_back("troupe-compute", [this] { help(); });
  } catch (...) {  // fewer helpers compute the same result
  }
}

void ThreadPool::Crew::help() noexcept {
  for (int seen = 0; (seen = await_change(call, seen, spin)) >= 0;)
    take_parts(static_cast<std::uint64_t>(seen));
}

void ThreadPool::Crew::compute(std::int64_t index) noexcept {
  try {
    const FloatModeScope scope(mode);
    (*part)(n* index / parts, n * (index + 1) / parts);
  } catch (...) {
    const std::lock_guard lock(failing);
    if (!failure) failure = std::current_exception();
  }
}

void ThreadPool::Crew::take_parts(std::uint64_t of_call) noexcept {
  inside_part = true;
  std::uint64_t word = ticket.load(std::memory_order_acquire);
  for (;;) {
    Ticket now = Ticket::of(word);
    if (now.call != of_call || now.next == now.parts) break;
    const auto index = static_cast<std::int64_t>(now.next++);
    if (!ticket.compare_exchange_weak(word, now.word(), std::memory_order_acq_rel)) continue;
    // Read before `done` is raised: after the last part the caller may begin the next call.
    const std::int64_t last = parts;
    compute(index);
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == last) done.notify_one();
    word = ticket.load(std::memory_order_acquire);
  }
  inside_part = false;
}

void ThreadPool::Crew::run(std::int64_t all, std::int64_t pieces, const Part& f) {
  part = &f;
  n = all;
  parts = pieces;
  mode = FloatMode::current();
  failure = nullptr;
  done.store(0, std::memory_order_relaxed);
  const auto number = static_cast<int>(
      (static_cast<unsigned>(call.load(std::memory_order_relaxed)) + 1u) & 0x7fffffffu);
  const auto of_call = static_cast<std::uint64_t>(number);
  ticket.store(Ticket{of_call, static_cast<std::uint64_t>(pieces), 0}.word(),
               std::memory_order_release);
  // notify_all() skips the system call if a plain load shows no sleeper. The seq_cst store orders
  // the new number before that load, so that no helper falls asleep unnoticed.
  call.store(number, std::memory_order_seq_cst);
  call.notify_all();
  take_parts(of_call);
  for (int seen = done.load(std::memory_order_acquire); seen != pieces;)
    seen = await_change(done, seen, spin);
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

void ThreadPool::Crew::end() noexcept {
  call.store(-1, std::memory_order_seq_cst);
  call.notify_all();
  for (SignalMaskedThread& helper : helpers) helper.join();
}

ThreadPool::ThreadPool(int threads) : threads_(threads) {}

ThreadPool::~ThreadPool() {
  if (crew_ == nullptr) return;
  if (!mark_.in_fork()) {
    crew_->end();
    return;
  }
  // In a fork there is no thread to join, since the helpers run in the parent. Leak the crew.
  [[maybe_unused]] const Crew* const kept = crew_.release();
}

void ThreadPool::run(std::int64_t n, std::int64_t grain, const Part& part) {
  constexpr std::int64_t kPartsPerThread = 4;  // so that a delayed thread delays only a small part
  if (n <= 0) return;
  const std::int64_t parts =
      std::clamp(n / std::max<std::int64_t>(grain, 1), std::int64_t{1}, kPartsPerThread * threads_);
  if (parts == 1 || threads_ == 1 || inside_part || (crew_ != nullptr && mark_.in_fork()))
    return part(0, n);
  if (crew_ == nullptr) {
    mark_ = ProcessMark();
    crew_ = std::make_unique<Crew>();
    crew_->start(threads_ - 1);
  }
  TROUPE_ASSERT(!busy_.exchange(true, std::memory_order_acquire),
                "two threads compute on one device");
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> free(
      &busy_, [](std::atomic<bool>* busy) { busy->store(false, std::memory_order_release); });
  crew_->run(n, parts, part);
}

}  // namespace troupe::kernels::internal

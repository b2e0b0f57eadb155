// One rank's waits, deaths and errors. The operations are in operations.cpp.
#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/actors/collective/internal/parking.hpp"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::collective::internal {
namespace {

using std::chrono::milliseconds;

/// Long enough to catch a rank that is about to arrive, short enough not to hinder it on a shared
/// core: about 10 µs.
constexpr int kSpins = 200;
/// Between looks at the clock and at the other rank's process.
constexpr Duration kSlice = milliseconds(50);

/// Whether a is phase b or later; the counter may wrap.
bool reached(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) >= 0;
}

std::uint64_t pid_namespace() noexcept {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Fd open_process(int pid, bool& gone) noexcept {
#ifdef SYS_pidfd_open
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  gone = !fd && errno == ESRCH;
  return fd;
#else
  static_cast<void>(pid);
  gone = false;
  return {};
#endif
}

const char* name_of(Operation::Kind kind) noexcept {
  switch (kind) {
    case Operation::Kind::barrier: return "barrier";
    case Operation::Kind::broadcast: return "broadcast";
    case Operation::Kind::allreduce: return "allreduce";
    case Operation::Kind::reduce_scatter: return "reduce_scatter";
    case Operation::Kind::all_gather: return "all_gather";
  }
  return "?";
}

}  // namespace

ArenaCommunicator::ArenaCommunicator(std::shared_ptr<Arena> arena, int rank, Duration timeout,
                                     bool watch_processes)
    : Communicator(rank, arena->size(), timeout),
      arena_(std::move(arena)),
      watch_processes_(watch_processes),
      pid_namespace_(watch_processes ? pid_namespace() : 0),
      processes_(static_cast<std::size_t>(size())) {
  RankLine& line = arena_->line(rank);
  std::uint32_t expected = absent;
  if (!line.state.compare_exchange_strong(expected, joining))
    throw InvalidArgument(Code::invalid_argument,
                          "rank " + std::to_string(rank) + " of the group is taken already");
  line.pid = static_cast<std::int32_t>(::getpid());
  line.pid_namespace = pid_namespace_;
  line.state.store(joined, std::memory_order_release);
}

ArenaCommunicator::~ArenaCommunicator() {
  RankLine& line = arena_->line(rank());
  line.state.store(left, std::memory_order_seq_cst);
  unpark_all(line.published);
}

void ArenaCommunicator::abort(std::string_view reason) noexcept {
  Header& header = arena_->header();
  if (header.abort_claimed.exchange(1) != 0) return;
  header.abort_rank = rank();
  const std::size_t length = std::min<std::size_t>(reason.size(), 200);
  std::memcpy(header.reason, reason.data(), length);
  header.reason[length] = '\0';
  header.aborted.store(1, std::memory_order_seq_cst);
  for (int other = 0; other < size(); ++other) unpark_all(arena_->line(other).published);
}

void ArenaCommunicator::throw_aborted() {
  const Header& header = arena_->header();
  const std::string reason(header.reason, ::strnlen(header.reason, sizeof header.reason));
  throw Cancelled(Code::cancelled, describe() + ": rank " + std::to_string(header.abort_rank) +
                                       " ended the group: " + reason);
}

std::string ArenaCommunicator::describe() const {
  return std::string(current_ == nullptr ? "collective" : name_of(current_->kind)) + " #" +
         std::to_string(operations_) + " on rank " + std::to_string(rank()) + " of " +
         std::to_string(size());
}

void ArenaCommunicator::fail(Code code, const std::string& why) {
  abort(why);
  raise(Error(code, describe() + ": " + why, Outcome::unknown));
}

bool ArenaCommunicator::process_is_dead(int other) {
  const RankLine& line = arena_->line(other);
  if (!watch_processes_ || line.pid == static_cast<std::int32_t>(::getpid()) ||
      line.pid_namespace != pid_namespace_ || pid_namespace_ == 0)
    return false;
  Fd& process = processes_[static_cast<std::size_t>(other)];
  if (!process) {
    bool gone = false;
    process = open_process(line.pid, gone);
    if (!process) return gone;
  }
  pollfd watched{process.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

bool ArenaCommunicator::arrived(int other) noexcept {
  return reached(arena_->line(other).published.load(std::memory_order_acquire), phase_);
}

void ArenaCommunicator::check() {
  if (arena_->header().aborted.load(std::memory_order_acquire) != 0) throw_aborted();
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || arrived(other)) continue;
    // the state is read before the phase: a rank may arrive and then leave or die
    const std::uint32_t state = arena_->line(other).state.load(std::memory_order_acquire);
    const bool dead = state == joined && process_is_dead(other);
    if ((state != left && !dead) || arrived(other)) continue;
    const std::string who = "rank " + std::to_string(other);
    if (!dead) fail(Code::cancelled, who + " left the group");
    fail(Code::worker_died,
         who + " (process " + std::to_string(arena_->line(other).pid) + ") died");
  }
}

void ArenaCommunicator::fail_late() {
  std::string late;
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || arrived(other)) continue;
    const bool came = arena_->line(other).state.load(std::memory_order_acquire) != absent;
    late += (late.empty() ? "" : ", ") + ("rank " + std::to_string(other)) +
            (came ? " did not arrive" : " has not joined");
  }
  const auto limit = std::chrono::duration_cast<milliseconds>(timeout()).count();
  fail(Code::timed_out, late + " within " + std::to_string(limit) + " ms");
}

void ArenaCommunicator::wait_for(int other, Time deadline) {
  RankLine& line = arena_->line(other);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (arrived(other)) return;
    relax();
  }
  while (true) {
    line.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = line.published.load(std::memory_order_seq_cst);
    const Duration left = deadline - steady_now();
    const bool parks = !reached(seen, phase_) && left > Duration::zero() &&
                       arena_->header().aborted.load(std::memory_order_seq_cst) == 0;
    if (parks) park(line.published, seen, std::min(left, kSlice));
    line.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (arrived(other)) return;
    check();
    if (steady_now() >= deadline && !arrived(other)) fail_late();
  }
}

void ArenaCommunicator::meet(std::uint64_t offset, std::uint8_t part) {
  const Operation& o = *current_;
  const Announcement mine{static_cast<std::uint8_t>(o.kind),
                          static_cast<std::uint8_t>(o.type),
                          static_cast<std::uint8_t>(o.reduce),
                          part,
                          o.root,
                          o.count,
                          offset};
  if (arena_->header().aborted.load(std::memory_order_acquire) != 0) throw_aborted();
  ++phase_;
  RankLine& line = arena_->line(rank());
  line.announcements[phase_ % 2] = mine;
  line.published.exchange(phase_, std::memory_order_seq_cst);
  if (line.sleepers.load(std::memory_order_seq_cst) != 0) unpark_all(line.published);
  const Time deadline = steady_now() + timeout();
  for (int other = 0; other < size(); ++other)
    if (other != rank()) wait_for(other, deadline);
  for (int other = 0; other < size(); ++other)
    if (arena_->line(other).announcements[phase_ % 2] != mine)
      fail(Code::invalid_argument, "rank " + std::to_string(other) +
                                       " made another call or gave another size than rank " +
                                       std::to_string(rank()));
}

}  // namespace troupe::collective::internal

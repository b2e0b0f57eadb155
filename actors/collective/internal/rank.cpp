// One rank's waits, deaths and errors. The operations are in operations.cpp.
#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/actors/collective/internal/parking.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

namespace troupe::collective::internal {
namespace {

using std::chrono::milliseconds;

/// Long enough to catch a rank that is about to arrive, short enough not to hinder it on a shared
/// core: about 10 µs.
constexpr int kSpins = 200;
/// Between looks at the clock and at the other rank's process.
constexpr Duration kSlice = milliseconds(50);
constexpr auto kLastKind = Operation::Kind::all_gather;

/// Whether a is phase b or later; the counter may wrap.
bool reached(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) >= 0;
}

/// The two halves of Header::fate; no rank: -1.
std::uint32_t met_phase(std::uint64_t fate) noexcept {
  return static_cast<std::uint32_t>(fate >> 32);
}
int ended_by(std::uint64_t fate) noexcept {
  return static_cast<int>(fate & 0xffffffff) - 1;
}

std::uint64_t pid_namespace() noexcept {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Fd open_process(int pid, bool& gone) noexcept {
#ifdef SYS_pidfd_open
  Fd fd = make_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // The number of a dead leader of a process group or session lives on: EINVAL, or ENOENT.
  gone = !fd && (errno == ESRCH || errno == EINVAL || errno == ENOENT);
  return fd;
#else
  static_cast<void>(pid);
  gone = false;
  return {};
#endif
}

/// Whether a signal or a debugger has stopped it.
bool is_stopped(int pid) noexcept {
  char path[32], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const Fd file = make_fd(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : 0;
  if (size <= 0) return false;
  text[size] = '\0';
  const char* name_end = std::strrchr(text, ')');
  return name_end != nullptr && (name_end[1] == ' ') && (name_end[2] == 'T' || name_end[2] == 't');
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

void ArenaCommunicator::end_group(Code code, std::string_view verdict,
                                  std::uint32_t unless_met) noexcept {
  const std::lock_guard lock(saying_);
  std::atomic<std::uint64_t>& fate = arena_->header().fate;
  std::uint64_t seen = fate.load(std::memory_order_acquire);
  if (ended_by(seen) >= 0) return;
  Verdict& mine = arena_->verdict(rank());
  mine.code = static_cast<std::uint32_t>(code);
  const std::size_t length = std::min(verdict.size(), sizeof mine.text - 1);
  std::memcpy(mine.text, verdict.data(), length);
  mine.text[length] = '\0';
  const auto name = static_cast<std::uint32_t>(rank() + 1);
  do {
    if (ended_by(seen) >= 0) return;
    if (unless_met != 0 && reached(met_phase(seen), unless_met)) return;
  } while (!fate.compare_exchange_weak(seen, seen | name, std::memory_order_seq_cst));
  for (int other = 0; other < size(); ++other) unpark_all(arena_->line(other).published);
}

void ArenaCommunicator::abort(std::string_view reason) noexcept {
  char cut[201] = {};
  reason.copy(cut, sizeof cut - 1);
  char verdict[256];
  std::snprintf(verdict, sizeof verdict, "rank %d ended the group: %s", rank(), cut);
  end_group(Code::cancelled, verdict, 0);
}

bool ArenaCommunicator::is_over() const noexcept {
  return ended_by(arena_->header().fate.load(std::memory_order_seq_cst)) >= 0;
}

bool ArenaCommunicator::is_met() const noexcept {
  return reached(met_phase(arena_->header().fate.load(std::memory_order_acquire)), phase_);
}

void ArenaCommunicator::settle() {
  std::atomic<std::uint64_t>& fate = arena_->header().fate;
  std::uint64_t seen = fate.load(std::memory_order_acquire);
  while (!reached(met_phase(seen), phase_)) {
    if (ended_by(seen) >= 0) throw_aborted();
    if (fate.compare_exchange_weak(seen, std::uint64_t{phase_} << 32, std::memory_order_seq_cst))
      return;
  }
}

void ArenaCommunicator::throw_aborted() {
  // The word is shared memory: it may name a rank that there is not.
  const int by = ended_by(arena_->header().fate.load(std::memory_order_acquire));
  const Verdict& said = arena_->verdict(std::clamp(by, 0, size() - 1));
  const std::string verdict(said.text, ::strnlen(said.text, sizeof said.text));
  Code code = Code::cancelled;
  for (const Code known : {Code::timed_out, Code::worker_died, Code::invalid_argument})
    if (said.code == static_cast<std::uint32_t>(known)) code = known;
  raise(Error(code, describe() + ": " + verdict, Outcome::unknown));
}

std::string ArenaCommunicator::describe() const {
  return std::string(name_of(current_.kind)) + " #" + std::to_string(operations_) + " on rank " +
         std::to_string(rank()) + " of " + std::to_string(size());
}

void ArenaCommunicator::fail_phase(Code code, const std::string& why) {
  end_group(code, why + "; " + text_of(progress()), phase_);
  if (!is_met()) throw_aborted();
}

void ArenaCommunicator::note_progress(bool inside) noexcept {
  arena_->line(rank()).progress.store(operations_ << 8 |
                                          static_cast<std::uint64_t>(current_.kind) << 1 |
                                          static_cast<std::uint64_t>(inside),
                                      std::memory_order_release);
}

bool ArenaCommunicator::shares_pids(const RankLine& line) const noexcept {
  return watch_processes_ && line.pid != static_cast<std::int32_t>(::getpid()) &&
         line.pid_namespace == pid_namespace_ && pid_namespace_ != 0;
}

std::vector<RankProgress> ArenaCommunicator::progress() const {
  std::vector<RankProgress> all(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    RankProgress& one = all[static_cast<std::size_t>(r)];
    const RankLine& line = arena_->line(r);
    const std::uint32_t state = line.state.load(std::memory_order_acquire);
    if (state != joined && state != left) continue;
    one.state = state == left ? RankProgress::State::left : RankProgress::State::joined;
    const std::uint64_t word = line.progress.load(std::memory_order_acquire);
    one.sequence = word >> 8;
    one.kind = static_cast<Operation::Kind>(
        std::min<std::uint64_t>(word >> 1 & 0x7f, static_cast<std::uint64_t>(kLastKind)));
    one.inside = (word & 1) != 0;
    if (!shares_pids(line)) continue;
    one.pid = line.pid;
    one.stopped = state == joined && is_stopped(line.pid);
  }
  return all;
}

bool ArenaCommunicator::process_is_dead(int other) {
  const RankLine& line = arena_->line(other);
  if (!shares_pids(line)) return false;
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
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || arrived(other)) continue;
    // the state is read before the phase: a rank may arrive and then leave or die
    const std::uint32_t state = arena_->line(other).state.load(std::memory_order_acquire);
    const bool dead = state == joined && process_is_dead(other);
    if ((state != left && !dead) || arrived(other)) continue;
    const std::string who = "rank " + std::to_string(other);
    if (dead)
      fail_phase(Code::worker_died,
                 who + " (process " + std::to_string(arena_->line(other).pid) + ") died");
    else
      fail_phase(Code::cancelled, who + " left the group");
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
  if (late.empty()) return;  // the last one came just now
  const auto limit = std::chrono::duration_cast<milliseconds>(timeout()).count();
  fail_phase(Code::timed_out, late + " within " + std::to_string(limit) + " ms");
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
    const bool parks = !reached(seen, phase_) && left > Duration::zero() && !is_over();
    if (parks) park(line.published, seen, std::min(left, kSlice));
    line.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (arrived(other)) return;
    if (is_over() && !is_met()) throw_aborted();
    check();
    if (steady_now() >= deadline && !arrived(other)) fail_late();
  }
}

void ArenaCommunicator::meet(std::uint64_t offset, std::uint8_t part) {
  const Operation& o = current_;
  const Announcement mine{static_cast<std::uint8_t>(o.kind),
                          static_cast<std::uint8_t>(o.type),
                          static_cast<std::uint8_t>(o.reduce),
                          part,
                          o.root,
                          o.count,
                          offset};
  if (is_over()) throw_aborted();
  ++phase_;
  RankLine& line = arena_->line(rank());
  line.announcements[phase_ % 2] = mine;
  line.published.exchange(phase_, std::memory_order_seq_cst);
  if (line.sleepers.load(std::memory_order_seq_cst) != 0) unpark_all(line.published);
  const Time deadline = deadline_after(steady_now(), timeout());
  for (int other = 0; other < size(); ++other)
    if (other != rank()) wait_for(other, deadline);
  settle();
  compare();
}

void ArenaCommunicator::compare() {
  const auto said = [this](int r) { return arena_->line(r).announcements[phase_ % 2]; };
  const Announcement mine = said(rank());
  bool same = true;
  for (int r = 0; r < size(); ++r) same = same && said(r) == mine;
  if (same) return;
  // What most ranks say is right; as many on either side: what the lowest rank says.
  Announcement right = mine;
  int most = 0;
  for (int r = 0; r < size(); ++r) {
    int count = 0;
    for (int other = 0; other < size(); ++other) count += said(other) == said(r) ? 1 : 0;
    if (count <= most) continue;
    right = said(r);
    most = count;
  }
  std::string wrong;
  for (int r = 0; r < size(); ++r)
    if (!(said(r) == right)) wrong += (wrong.empty() ? "rank " : ", rank ") + std::to_string(r);
  end_group(
      Code::invalid_argument,
      wrong + " made another call or gave another size than the others; " + text_of(progress()), 0);
  throw_aborted();
}

}  // namespace troupe::collective::internal

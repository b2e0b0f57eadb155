// ArenaCommunicator: how a rank waits for others, detects deaths and ends a group. The operations
// are in operations.cpp and transfers.cpp.
#include "troupe/actors/collective/internal/rank.hpp"

#include "troupe/actors/collective/internal/parking.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
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

/// How much longer than itself others wait for a rank that waits for another node.
constexpr Duration kLongerForAHead = std::chrono::seconds(2);

constexpr auto kLastKind = OperationKind::group;

/// Announcement::part of a phase in which ranks agree on an operation of their devices.
constexpr std::uint8_t kOnDevice = 255;

/// Returns whether phase a is b or later. The signed difference is right also after the counter has
/// wrapped.
bool reached(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) >= 0;
}

/// The two halves of RankLine::fate: the phase, and the rank that ended the group or -1.
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
  // EINVAL or ENOENT: the process is dead, but its number is still that of a process group or
  // session which it led.
  gone = !fd && (errno == ESRCH || errno == EINVAL || errno == ENOENT);
  return fd;
#else
  static_cast<void>(pid);
  gone = false;
  return {};
#endif
}

/// Returns whether a signal or a debugger has stopped the process.
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

std::uint64_t progress_word(OperationKind kind, std::uint64_t sequence, bool inside) noexcept {
  return sequence << 8 | static_cast<std::uint64_t>(kind) << 1 | static_cast<std::uint64_t>(inside);
}

void take_progress(std::uint64_t word, RankProgress& one) noexcept {
  one.sequence = word >> 8;
  one.kind = static_cast<OperationKind>(
      std::min<std::uint64_t>(word >> 1 & 0x7f, static_cast<std::uint64_t>(kLastKind)));
  one.inside = (word & 1) != 0;
}

ArenaCommunicator::ArenaCommunicator(std::shared_ptr<Arena> arena, Seats seats, int rank,
                                     const How& how)
    : Coordinator(rank, static_cast<int>(seats.members.size()), how.timeout),
      arena_(std::move(arena)),
      seats_(std::move(seats)),
      calls_(*arena_, self(), size() == arena_->size() && !how.numbers.part, how.numbers.whole),
      watch_processes_(how.watch_processes),
      link_(how.link),
      numbers_(how.numbers),
      watcher_(how.watcher),
      pid_namespace_(how.watch_processes ? pid_namespace() : 0),
      processes_(static_cast<std::size_t>(size())) {
  RankLine& mine = line(rank);
  std::uint32_t expected = absent;
  if (!mine.state.compare_exchange_strong(expected, joining))
    throw InvalidArgument(Code::invalid_argument,
                          "rank " + std::to_string(rank) + " of the group is taken already");
  mine.pid = static_cast<std::int32_t>(::getpid());
  mine.pid_namespace = pid_namespace_;
  mine.state.store(joined, std::memory_order_release);
  start(how.progress);
}

ArenaCommunicator::~ArenaCommunicator() {
  stop();
  RankLine& mine = line(rank());
  mine.state.store(left, std::memory_order_seq_cst);
  unpark_all(mine.published);
  for (int other = 0; other < size(); ++other)
    if (line(other).bell_sleeps.load(std::memory_order_seq_cst) != 0) ring(other);
}

std::unique_ptr<Communicator> ArenaCommunicator::join_split(const Operation& done,
                                                            Progress progress) {
  const auto mine = std::find(done.members.begin(), done.members.end(), rank());
  Seats seats{done.lane, {}};
  for (const int member : done.members) seats.members.push_back(at(member));
  return std::make_unique<ArenaCommunicator>(arena_, std::move(seats),
                                             static_cast<int>(mine - done.members.begin()),
                                             How{timeout(), watch_processes_, progress, link_});
}

// Order: first the Verdict, then the mark in the fate word, which releases the Verdict to ranks
// that see the mark. Then Header::over, for the other groups of the arena, and last the wake-ups of
// all sleeping ranks.
void ArenaCommunicator::end_group(Code code, std::string_view verdict, std::uint32_t unless_met,
                                  Ending ending) noexcept {
  const std::lock_guard lock(saying_);
  std::uint64_t seen = fate().load(std::memory_order_acquire);
  if (ended_by(seen) >= 0) return;
  Verdict& mine = arena_->verdict(seats_.lane, self());
  // A rank that gave one group up, as an exception does, says more when it ends the next.
  const bool says_more = ending == Ending::given_up && was_given_up();
  if (says_more || !take_verdict(mine)) {
    mine.code = static_cast<std::uint16_t>(code);
    mine.ending = ending;
    const std::size_t length = std::min(verdict.size(), sizeof mine.text - 1);
    std::memcpy(mine.text, verdict.data(), length);
    mine.text[length] = '\0';
  }
  const auto name = static_cast<std::uint32_t>(self() + 1);
  do {
    if (ended_by(seen) >= 0) return;
    if (unless_met != 0 && reached(met_phase(seen), unless_met)) return;
  } while (!fate().compare_exchange_weak(seen, seen | name, std::memory_order_seq_cst));
  std::uint64_t nobody = 0;
  arena_->header().over.compare_exchange_strong(
      nobody, static_cast<std::uint64_t>(seats_.lane) << 32 | name, std::memory_order_seq_cst);
  for (std::uint32_t lane = 0; lane < arena_->lanes(); ++lane)
    for (int other = 0; other < arena_->size(); ++other) {
      RankLine& sleeping = arena_->line(lane, other);
      if (sleeping.sleepers.load(std::memory_order_seq_cst) != 0) unpark_all(sleeping.published);
      sleeping.bell.fetch_add(1, std::memory_order_seq_cst);
      if (sleeping.bell_sleeps.load(std::memory_order_seq_cst) != 0) unpark_all(sleeping.bell);
    }
}

bool ArenaCommunicator::take_verdict(Verdict& mine) const noexcept {
  const std::uint64_t over = arena_->header().over.load(std::memory_order_seq_cst);
  if (over == 0) return false;
  // Another process may have written a wrong word into shared memory: clamp the lane and the rank.
  const auto lane = std::min(static_cast<std::uint32_t>(over >> 32), arena_->lanes() - 1);
  const Verdict& said = arena_->verdict(lane, std::clamp(ended_by(over), 0, arena_->size() - 1));
  const std::size_t length = ::strnlen(said.text, sizeof said.text - 1);
  mine.code = said.code;
  mine.ending = said.ending == Ending::calls ? Ending::calls : Ending::fault;
  std::memmove(mine.text, said.text, length);
  mine.text[length] = '\0';
  return true;
}

void ArenaCommunicator::adopt(std::uint32_t unless_met) noexcept {
  if (arena_->header().over.load(std::memory_order_acquire) != 0)
    end_group(Code::cancelled, {}, unless_met);  // takes that group's error
}

void ArenaCommunicator::abort(std::string_view reason) noexcept {
  char cut[201] = {};
  reason.copy(cut, sizeof cut - 1);
  char verdict[300];
  if (seats_.lane == 0)
    std::snprintf(verdict, sizeof verdict, "rank %d ended the group: %s", numbers_.first + rank(),
                  cut);
  else
    std::snprintf(verdict, sizeof verdict,
                  "rank %d of a split (%d of the whole) ended the group: %s",
                  numbers_.first + rank(), numbers_.whole + self(), cut);
  end_group(Code::cancelled, verdict, 0, Ending::given_up);
}

bool ArenaCommunicator::has_ended() const noexcept {
  return ended_by(fate().load(std::memory_order_seq_cst)) >= 0;
}

bool ArenaCommunicator::was_given_up() const noexcept {
  const std::uint64_t over = arena_->header().over.load(std::memory_order_acquire);
  if (over == 0 || ended_by(over) != self()) return false;
  const auto lane = std::min(static_cast<std::uint32_t>(over >> 32), arena_->lanes() - 1);
  return arena_->verdict(lane, self()).ending == Ending::given_up;
}

bool ArenaCommunicator::is_over() const noexcept {
  return has_ended() || arena_->header().over.load(std::memory_order_seq_cst) != 0;
}

bool ArenaCommunicator::is_met() const noexcept {
  return reached(met_phase(fate().load(std::memory_order_acquire)), phase_);
}

void ArenaCommunicator::settle() {
  std::uint64_t seen = fate().load(std::memory_order_acquire);
  while (!reached(met_phase(seen), phase_)) {
    if (ended_by(seen) >= 0) throw_aborted();
    if (fate().compare_exchange_weak(seen, std::uint64_t{phase_} << 32, std::memory_order_seq_cst))
      return;
  }
}

ArenaCommunicator::Ended ArenaCommunicator::ended() noexcept {
  adopt(0);
  // Another process may have written a wrong word into shared memory: clamp the rank.
  const int by = ended_by(fate().load(std::memory_order_acquire));
  const Verdict& said = arena_->verdict(seats_.lane, std::clamp(by, 0, arena_->size() - 1));
  Ended how{Code::cancelled, said.ending,
            std::string(said.text, ::strnlen(said.text, sizeof said.text))};
  for (const Code known :
       {Code::timed_out, Code::worker_died, Code::invalid_argument, Code::unavailable})
    if (said.code == static_cast<std::uint16_t>(known)) how.code = known;
  return how;
}

void ArenaCommunicator::end_with(const Ended& how) noexcept {
  end_group(how.code, how.text, 0, how.ending);
}

Error ArenaCommunicator::error_of(OperationKind kind, std::uint64_t sequence) noexcept {
  const Ended how = ended();
  if (how.ending == Ending::calls) return {how.code, how.text, Outcome::unknown};
  return {how.code, describe(kind, sequence) + ": " + how.text, Outcome::unknown};
}

void ArenaCommunicator::throw_aborted() {
  raise(error_of(kind_, operations_));
}

std::string ArenaCommunicator::describe(OperationKind kind, std::uint64_t sequence) const {
  const int ranks = numbers_.size == 0 ? size() : numbers_.size;
  return std::string(name_of(kind)) + " #" + std::to_string(sequence) + " on rank " +
         std::to_string(numbers_.first + rank()) + " of " + std::to_string(ranks);
}

std::string ArenaCommunicator::progress_text() const {
  return text_of(watcher_ == nullptr ? progress() : watcher_->whole_progress());
}

void ArenaCommunicator::set_away(Time until) noexcept {
  line(rank()).away_until.store(until.time_since_epoch().count(), std::memory_order_release);
}

Time ArenaCommunicator::limit_for(int other, Time limit) const noexcept {
  const Time away(Duration(line(other).away_until.load(std::memory_order_acquire)));
  return away == Time{} ? limit : std::max(limit, deadline_after(away, kLongerForAHead));
}

void ArenaCommunicator::end(Code code, const std::string& why) noexcept {
  end_group(code, why + "; " + progress_text(), 0);
}

bool ArenaCommunicator::check_ranks() {
  for (int other = 0; other < size() && !is_over(); ++other)
    if (other != rank() && !has_left(other) && process_is_dead(other))
      end(Code::worker_died, death_of(other));
  return is_over();
}

std::string ArenaCommunicator::death_of(int other) const {
  return name_of_rank(other) + " (process " + std::to_string(arena_->line(0, at(other)).pid) +
         ") died";
}

std::string ArenaCommunicator::name_of_rank(int rank) const {
  std::string name = "rank " + std::to_string(numbers_.first + rank);
  if (seats_.lane != 0)
    name += " of a split (" + std::to_string(numbers_.whole + at(rank)) + " of the whole)";
  return name;
}

Time ArenaCommunicator::deadline_from(Time now) const noexcept {
  return std::min(deadline_after(now, timeout()), current_->must_end());
}

void ArenaCommunicator::fail_phase(Code code, const std::string& why) {
  end_group(code, why + "; " + progress_text(), phase_);
  if (!is_met()) throw_aborted();
}

void ArenaCommunicator::fail(Code code, const std::string& why) {
  end_group(code, why + "; " + progress_text(), 0);
  throw_aborted();
}

void ArenaCommunicator::note_progress(bool inside) noexcept {
  line(rank()).progress.store(progress_word(kind_, operations_, inside), std::memory_order_release);
}

void ArenaCommunicator::count_anew() noexcept {
  operations_ = 0;
  line(rank()).progress.store(0, std::memory_order_release);
}

void ArenaCommunicator::note_done(OperationKind kind, std::uint64_t sequence) noexcept {
  std::uint64_t inside = progress_word(kind, sequence, true);
  line(rank()).progress.compare_exchange_strong(inside, progress_word(kind, sequence, false));
}

bool ArenaCommunicator::shares_pids(const RankLine& whose) const noexcept {
  return watch_processes_ && whose.pid != static_cast<std::int32_t>(::getpid()) &&
         whose.pid_namespace == pid_namespace_ && pid_namespace_ != 0;
}

std::vector<RankProgress> ArenaCommunicator::progress() const {
  std::vector<RankProgress> all(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    RankProgress& one = all[static_cast<std::size_t>(r)];
    const RankLine& its = line(r);
    const std::uint32_t state = its.state.load(std::memory_order_acquire);
    if (state != joined && state != left) continue;
    one.state = state == left ? RankProgress::State::left : RankProgress::State::joined;
    take_progress(its.progress.load(std::memory_order_acquire), one);
    if (!shares_pids(its)) continue;
    one.pid = its.pid;
    one.stopped = state == joined && is_stopped(its.pid);
  }
  return all;
}

// Asks by the rank's line in lane 0, which has the process number also before the rank has joined a
// split.
bool ArenaCommunicator::process_is_dead(int other) {
  const std::lock_guard lock(looking_);
  const RankLine& whole = arena_->line(0, at(other));
  const std::uint32_t state = whole.state.load(std::memory_order_acquire);
  if ((state != joined && state != left) || !shares_pids(whole)) return false;
  Fd& process = processes_[static_cast<std::size_t>(other)];
  if (!process) {
    bool gone = false;
    process = open_process(whole.pid, gone);
    if (!process) return gone;
  }
  pollfd watched{process.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

bool ArenaCommunicator::has_left(int other) noexcept {
  const std::uint32_t state = line(other).state.load(std::memory_order_acquire);
  if (state == left) return true;
  // A rank that left the whole group before it joined this one will not join it.
  return state == absent &&
         arena_->line(0, at(other)).state.load(std::memory_order_acquire) == left;
}

bool ArenaCommunicator::arrived(int other) noexcept {
  return reached(line(other).published.load(std::memory_order_acquire), phase_);
}

void ArenaCommunicator::check() {
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || arrived(other)) continue;
    // The state is read before the phase: a rank may arrive and then leave or die, and then it has
    // arrived.
    const bool gone = has_left(other);
    const bool dead = !gone && process_is_dead(other);
    if ((!gone && !dead) || arrived(other)) continue;
    if (dead)
      fail_phase(Code::worker_died, death_of(other));
    else
      fail_phase(Code::cancelled, name_of_rank(other) + " left the group");
  }
}

void ArenaCommunicator::check_calls(std::uint32_t unless_met) {
  const std::string difference = calls_.difference();
  if (difference.empty()) return;
  end_group(Code::invalid_argument, difference, unless_met, Ending::calls);
  if (unless_met == 0 || !is_met()) throw_aborted();
}

std::string ArenaCommunicator::late_words(Time limit, const Operation& operation) const {
  if (operation.must_end() <= limit) return " by the deadline";
  const auto longest = std::chrono::duration_cast<milliseconds>(timeout()).count();
  return " within " + std::to_string(longest) + " ms";
}

void ArenaCommunicator::fail_late(Time deadline) {
  std::string late;
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || arrived(other)) continue;
    const bool came = line(other).state.load(std::memory_order_acquire) != absent;
    late += (late.empty() ? "" : ", ") + name_of_rank(other) +
            (came ? " did not arrive" : " has not joined");
  }
  if (late.empty()) return;  // the last rank arrived just now
  fail_phase(Code::timed_out, late + late_words(deadline, *current_));
}

// Spins, then sleeps on `published` of the other rank. The waiting rank increments `sleepers` and
// then reads `published`; the other rank writes `published` and then reads `sleepers` (meet()). All
// four are seq_cst, so at least one sees the other's write: either this rank does not sleep, or the
// other one wakes it.
void ArenaCommunicator::wait_for(int other, Time deadline) {
  RankLine& its = line(other);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (arrived(other)) return;
    relax();
  }
  while (true) {
    its.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = its.published.load(std::memory_order_seq_cst);
    const Duration left = limit_for(other, std::min(deadline, current_->must_end())) - steady_now();
    const bool parks = !reached(seen, phase_) && left > Duration::zero() && !is_over();
    if (parks) park(its.published, seen, std::min(left, kSlice));
    its.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (arrived(other)) return;
    if (is_over()) adopt(phase_);
    if (has_ended() && !is_met()) throw_aborted();
    check_calls(phase_);
    check();
    if (watcher_ != nullptr) watcher_->idle(other);
    const Time limit = std::min(deadline, current_->must_end());
    if (steady_now() >= limit_for(other, limit) && !arrived(other)) fail_late(limit);
  }
}

void ArenaCommunicator::await_input() {
  const Event& after = current_->terms.after;
  if (after.has_happened()) return;
  const Time start = steady_now();
  while (!after.wait(std::min(steady_now() + kSlice, deadline_from(start)))) {
    if (watcher_ != nullptr) watcher_->idle(rank());
    if (is_over()) throw_aborted();
    if (steady_now() < deadline_from(start)) continue;
    fail(Code::timed_out, "the input of " + name_of_rank(rank()) + " was not ready" +
                              late_words(deadline_from(start), *current_));
  }
}

void ArenaCommunicator::simulate_link() const {
  const Moved moved = moved_by(*current_, size(), rank());
  if (moved.factor == 0) return;
  const double bytes =
      static_cast<double>(moved.bytes) * static_cast<double>(moved.factor) / size();
  const double seconds = link_.bytes_per_second > 0 ? bytes / link_.bytes_per_second : 0;
  std::this_thread::sleep_for(link_.latency + std::chrono::duration<double>(seconds));
}

void ArenaCommunicator::meet(std::uint64_t offset, std::uint8_t part) {
  const Operation& o = *current_;
  const Announcement mine{static_cast<std::uint8_t>(o.kind),
                          static_cast<std::uint8_t>(o.type),
                          static_cast<std::uint8_t>(o.reduce),
                          part,
                          o.root,
                          o.count,
                          offset,
                          o.call};
  if (is_over()) throw_aborted();
  ++phase_;
  RankLine& my_line = line(rank());
  my_line.announcements[phase_ % 2] = mine;
  my_line.published.exchange(phase_, std::memory_order_seq_cst);
  if (my_line.sleepers.load(std::memory_order_seq_cst) != 0) unpark_all(my_line.published);
  const Time deadline = deadline_after(steady_now(), timeout());
  for (int other = 0; other < size(); ++other)
    if (other != rank()) wait_for(other, deadline);
  settle();
  compare();
}

void ArenaCommunicator::compare() {
  const auto said = [this](int r) { return line(r).announcements[phase_ % 2]; };
  const Announcement mine = said(rank());
  bool same = true;
  for (int r = 0; r < size(); ++r) same = same && said(r) == mine;
  if (same) return;
  check_calls(0);
  // The announcement of most ranks is right; between equal numbers, that of the lowest rank.
  Announcement right = mine;
  int most = 0, first = 0;
  for (int r = 0; r < size(); ++r) {
    int count = 0;
    for (int other = 0; other < size(); ++other) count += said(other) == said(r) ? 1 : 0;
    if (count <= most) continue;
    right = said(r);
    most = count;
    first = r;
  }
  std::string wrong;
  for (int r = 0; r < size(); ++r)
    if (!(said(r) == right))
      wrong += (wrong.empty() ? "rank " : ", rank ") + std::to_string(numbers_.first + r);
  // Two ranks of a larger group cannot tell which of them is right.
  const bool is_part = numbers_.size > size() && 2 * most <= size();
  end_group(Code::invalid_argument,
            wrong + " made another call or gave another size than " +
                (is_part ? name_of_rank(first) : "the others") + "; " + progress_text(),
            0);
  throw_aborted();
}

void ArenaCommunicator::begin(const Operation& operation) {
  current_ = &operation;
  kind_ = operation.kind;
  ++operations_;
  note_progress(true);
  await_input();
}

void ArenaCommunicator::agree(const Operation& operation) {
  begin(operation);
  switch (operation.kind) {
    case OperationKind::send:
    case OperationKind::receive:
    case OperationKind::exchange:
    case OperationKind::group: return agree_on_transfers(operation);
    default: return meet(0, kOnDevice);
  }
}

void ArenaCommunicator::run(Operation& operation) {
  const kernels::FlushDenormals flush;  // all ranks add alike, whatever mode the caller has set
  begin(operation);
  if (link_.is_used()) simulate_link();
  switch (operation.kind) {
    case OperationKind::barrier: meet(0); break;
    case OperationKind::broadcast: broadcast(operation); break;
    case OperationKind::all_reduce: all_reduce(operation); break;
    case OperationKind::reduce_scatter: reduce_scatter(operation); break;
    case OperationKind::all_gather: all_gather(operation); break;
    case OperationKind::split: split(operation); break;
    case OperationKind::send:
    case OperationKind::receive:
    case OperationKind::exchange:
    case OperationKind::group: move(operation, operation.transfers); break;
  }
  note_progress(false);
}

}  // namespace troupe::collective::internal

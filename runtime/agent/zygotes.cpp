#include "troupe/runtime/agent/zygotes.hpp"

#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/orphans.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace troupe::agent {
namespace {

constexpr Duration kZygoteEnds = os::kWorkersEnd + std::chrono::milliseconds(750);
constexpr Duration kZygoteDies = std::chrono::seconds(1);  ///< after SIGKILL
/// How long a program that becomes a daemon may take from the end of its first process until
/// troupe::run.
constexpr Duration kZygoteGoesOn = std::chrono::seconds(10);
constexpr Duration kOrphansEnd = std::chrono::milliseconds(10);  ///< pause of end_orphans()

}  // namespace

Result<void> Zygotes::start(const Job& job) {
  if (const auto at = zygotes_.find(job.number); at != zygotes_.end() && at->second.link) return {};
  auto ends = os::LocalSocket::pair();
  if (!ends) return ends.error();
  // Uses the very file that a local driver was started from, even if another has its path by now.
  os::Program program = job.program;
  if (auto local = below_.programs ? below_.programs->local(job.id) : std::nullopt) {
    program.path = std::move(local->path);
    program.libraries = std::move(local->libraries);
  }
  const os::OutputEnds output =
      below_.logs ? below_.logs->add_zygote(job.number, job.id) : os::OutputEnds();
  program.out = output.out.get();
  program.err = output.err.get();
  auto pid = os::start_zygote(std::move(ends->second), program);
  if (!pid) return pid.error();
  Zygote& zygote = zygotes_[job.number];
  zygote.job = job.number;
  zygote.link = os::ZygoteLink(std::move(ends->first));
  zygote.ready = false;
  watch(zygote, *pid);
  return {};
}

void Zygotes::watch(Zygote& zygote, pid_t pid) {
  zygote.pid = pid;
  if (below_.logs) below_.logs->zygote_started(zygote.job, pid);
  zygote.life = os::handle_of(pid);
  zygote.due = Time::max();
}

// --- ends

/// Handles the end of the zygote's process; its socket may stay open in a process that it forked. A
/// zygote that exits with 0 before it is ready may have left a child in its place, as daemon()
/// does. That child has kZygoteGoesOn to report that it is ready.
void Zygotes::process_ended(Zygote& zygote) {
  if (!zygote.life || !is_ready(zygote.life.get())) return;  // the child has just reported
  zygote.life.reset();
  if (zygote.ready || !os::exited_well(zygote.pid))
    return below_.out.zygote_gone(zygote.job, zygote.ready);
  zygote.due = steady_now() + kZygoteGoesOn;
}

void Zygotes::leave(JobNumber job, std::vector<ProcessIndex> orphans, std::string why) {
  if (const auto at = zygotes_.find(job); at != zygotes_.end())
    leave(at->second, std::move(orphans), std::move(why));
}

void Zygotes::leave(Zygote& zygote, std::vector<ProcessIndex> orphans, std::string why) {
  if (!zygote.link) return;
  zygote.link = os::ZygoteLink();
  zygote.life.reset();
  zygote.due = Time::max();
  Ending& ending = ending_.emplace_back();
  ending.pid = zygote.pid;
  ending.handle = os::handle_of(zygote.pid);
  ending.until = steady_now() + (ending.handle ? kZygoteEnds : Duration(0));
  ending.orphans = std::move(orphans);
  ending.why = std::move(why);
}

bool Zygotes::kill(JobNumber job, const std::vector<ProcessIndex>& orphans,
                   const std::string& why) {
  const auto at = zygotes_.find(job);
  if (at == zygotes_.end() || !at->second.link) return false;
  os::send_signal(at->second.pid, SIGKILL);
  leave(at->second, orphans, why);
  return true;
}

/// Reports the workers of zygotes that have ended, and kills zygotes that are late. Does not block.
void Zygotes::reap() {
  const Time now = steady_now();
  for (std::size_t i = 0; i < ending_.size();) {
    Ending& ending = ending_[i];
    if (os::has_ended(ending.pid, ending.handle)) {
      const Ending over = std::move(ending);
      ending_.erase(ending_.begin() + static_cast<std::ptrdiff_t>(i));
      orphans_due_ = now;
      for (const ProcessIndex index : over.orphans) below_.out.gone(index, over.why);
      continue;
    }
    if (now >= ending.until) {
      os::send_signal(ending.pid, SIGKILL);
      ending.until = now + std::chrono::milliseconds(10);
    }
    ++i;
  }
}

bool Zygotes::is_zygote(pid_t pid) const {
  const auto ends = [pid](const Ending& ending) { return ending.pid == pid; };
  const auto has = [pid](const auto& one) { return one.second.link && one.second.pid == pid; };
  return std::any_of(ending_.begin(), ending_.end(), ends) ||
         std::any_of(zygotes_.begin(), zygotes_.end(), has);
}

/// Ends processes that a killed zygote left behind, as children of this one. Does not block. Waits
/// while a zygote starts: one that becomes a daemon is such a child until it reports that it is
/// ready.
void Zygotes::end_orphans() {
  const auto starts = [](const auto& one) { return one.second.link && !one.second.ready; };
  if (std::any_of(zygotes_.begin(), zygotes_.end(), starts)) {
    orphans_due_ = steady_now() + kOrphansEnd;
    return;
  }
  const std::size_t left =
      os::end_orphans([this](pid_t pid) { return is_zygote(pid) || pid == below_.stacks.child(); });
  orphans_due_ = left == 0 ? Time::max() : steady_now() + kOrphansEnd;
}

void Zygotes::end_all() {
  for (auto& [number, zygote] : zygotes_) leave(zygote, {}, {});
  for (Ending& ending : ending_) {
    pollfd entry{ending.handle.get(), POLLIN, 0};
    bool has_ended =
        ending.handle && troupe::wait_for({&entry, 1}, ending.until - steady_now()) > 0;
    if (!has_ended) {
      os::send_signal(ending.pid, SIGKILL);
      has_ended = !ending.handle || troupe::wait_for({&entry, 1}, kZygoteDies) > 0;
    }
    if (has_ended) os::reap_at_end(ending.pid);  // else it hangs in the kernel, and init reaps it
  }
  ending_.clear();
  const Time until = steady_now() + kZygoteEnds;
  while (os::end_orphans([](pid_t) { return false; }) != 0 && steady_now() < until)
    sleep_for(std::chrono::milliseconds(1));
}

// --- the loop

void Zygotes::wait_for(PollSet& set) {
  for (const Ending& ending : ending_) set.add(ending.handle.get());
  first_link_ = set.size();
  for (const auto& [number, zygote] : zygotes_)
    if (zygote.link) set.add(zygote.link.fd(), number.value, zygote.link.events());
  first_life_ = set.size();
  for (const auto& [number, zygote] : zygotes_)
    if (zygote.link) set.add(zygote.life.get(), number.value);
  end_ = set.size();
}

void Zygotes::on_timer() {
  if (!ending_.empty()) reap();
  for (auto& [number, zygote] : zygotes_)
    if (zygote.due <= steady_now()) below_.out.zygote_gone(number, zygote.ready);
  if (orphans_due_ <= steady_now()) end_orphans();
}

void Zygotes::serve(const PollSet& set) {
  for (std::size_t i = first_link_; i < end_; ++i) {
    if (!set.ready(i)) continue;
    const auto at = zygotes_.find(JobNumber::of(set.whose(i)));
    if (at == zygotes_.end() || !at->second.link) continue;  // it was left after wait_for()
    if (i < first_life_)
      read(at->second);
    else
      process_ended(at->second);
  }
}

void Zygotes::read(Zygote& zygote) {
  bool gone = false;
  for (const os::ZygoteEvent& event : zygote.link.read(gone)) {
    const auto index = ProcessIndex::of(event.token);  // of the worker that the event is about
    switch (event.kind) {
      case os::ZygoteEvent::Kind::ready:
        zygote.ready = true;
        if (event.pid == zygote.pid) break;
        os::reap(zygote.pid);
        watch(zygote, event.pid);
        break;
      case os::ZygoteEvent::Kind::note: break;
      case os::ZygoteEvent::Kind::forked: below_.out.forked(zygote.job, index, event.pid); break;
      case os::ZygoteEvent::Kind::exited: below_.out.ended(index, event.pid, event.status); break;
      case os::ZygoteEvent::Kind::failed: below_.out.not_forked(index, event.status); break;
    }
  }
  if (gone) below_.out.zygote_gone(zygote.job, zygote.ready);
}

Time Zygotes::next_deadline() const {
  Time until = orphans_due_;
  for (const Ending& ending : ending_) until = std::min(until, ending.until);
  for (const auto& [number, zygote] : zygotes_) until = std::min(until, zygote.due);
  return until;
}

}  // namespace troupe::agent

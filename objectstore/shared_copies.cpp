#include "troupe/objectstore/shared_copies.hpp"

#include "troupe/objectstore/internal/copy_file.hpp"
#include "troupe/objectstore/internal/session_folder.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <sys/eventfd.h>
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

namespace troupe::objectstore {

using internal::CopyOutcome;
using internal::SessionFolder;

namespace {

using How = CopyOutcome::How;

struct Job {
  enum class Kind : std::uint8_t { write, drop, look, read };
  Kind kind = Kind::drop;
  NodeId node;
  ObjectId object;
  SpillPlace place;  ///< write, drop
  Blob note;
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  std::uint64_t size = 0;
};

struct Outcome {
  Job job;
  How how = How::done;
  std::string why;
};

}  // namespace

struct SharedCopies::Impl {
  Impl(SharedOptions o, std::vector<SessionFolder> f)
      : options(std::move(o)),
        folders(std::move(f)),
        plan({static_cast<std::uint32_t>(options.folders.size()), options.quota,
              Bytes{SpillPlan::kPage}, 3, options.full}),
        event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TROUPE_ASSERT(event, "no descriptor left for the thread of shared copies");
    if (options.pwrite == nullptr) options.pwrite = &::pwrite;
    if (options.pread == nullptr) options.pread = &::pread;
    thread = SignalMaskedThread("troupe-shared", [this] { run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_one();
    thread.join();
    for (SessionFolder& folder : folders) folder.leave();
  }

  // Used by the thread only.
  void run();
  void carry_out(Outcome& outcome);
  void find(Outcome& outcome);
  bool sweep_one();
  std::size_t sweeps = 0;       ///< folders that are swept completely
  std::set<std::string> swept;  ///< cluster folders that were looked at

  void post(Job job);
  void wrote(Outcome& outcome, Time now, std::vector<CopyDone>& done);
  void note_failure(std::uint32_t folder);
  Error unreadable(const Outcome& outcome) const;

  struct Copy {
    SpillPlace place;
    std::uint64_t size = 0;
    std::size_t tries = 0;
    bool writing = true;
    bool dropped = false;  ///< drop() came during the write; removed when that has ended
  };
  SharedOptions options;
  std::vector<SessionFolder> folders;  ///< not changed while the thread runs
  SpillPlan plan;
  SharedStats stats;
  std::map<ObjectId, Copy> copies;

  Fd event;
  std::mutex mutex;  ///< guards the members below
  std::condition_variable wake;
  std::deque<Job> reads, others;
  std::vector<Outcome> outcomes;
  bool stop = false;
  SignalMaskedThread thread;
};

SharedCopies::SharedCopies(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SharedCopies::~SharedCopies() = default;

Result<std::unique_ptr<SharedCopies>> SharedCopies::open(SharedOptions options) {
  if (options.folders.empty())
    return Error(Code::invalid_argument, "shared copies need at least one folder");
  std::vector<SessionFolder> folders;
  for (const std::string& name : options.folders) {
    auto folder = SessionFolder::join(name, options.cluster, options.node);
    if (!folder) {
      for (SessionFolder& other : folders) other.leave();
      return folder.error();
    }
    folders.push_back(*std::move(folder));
  }
  return std::unique_ptr<SharedCopies>(
      new SharedCopies(std::make_unique<Impl>(std::move(options), std::move(folders))));
}

// --- on the thread

void SharedCopies::Impl::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto has_work = [this] { return stop || !reads.empty() || !others.empty(); };
    // Files of dead clusters are removed while there is no job, one cluster at a time.
    for (bool left = true; left && !has_work();) {
      lock.unlock();
      left = sweep_one();
      lock.lock();
    }
    wake.wait(lock, has_work);
    if (stop) return;
    std::deque<Job>& queue = reads.empty() ? others : reads;
    Outcome outcome;
    outcome.job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    carry_out(outcome);
    lock.lock();
    if (outcome.job.kind == Job::Kind::drop) continue;
    outcomes.push_back(std::move(outcome));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(event.get(), &one, sizeof one);
  }
}

/// Looks at one folder of another cluster. Returns false when all have been looked at.
bool SharedCopies::Impl::sweep_one() {
  for (; sweeps < folders.size(); ++sweeps)
    if (folders[sweeps].sweep_one(swept)) return true;
  return false;
}

void SharedCopies::Impl::carry_out(Outcome& outcome) {
  Job& job = outcome.job;
  if (job.kind == Job::Kind::look || job.kind == Job::Kind::read) return find(outcome);
  const int own = folders[job.place.folder].own();
  if (job.kind == Job::Kind::drop) return internal::remove_copy(own, job.object);
  CopyOutcome done = internal::write_copy(own, job.node, job.object, job.note, {job.from, job.size},
                                          options.pwrite, options.keep_free);
  outcome.how = done.how;
  outcome.why = std::move(done.why);
}

/// Looks for the copy in each folder until a good one is found. A bad copy does not end the search:
/// another folder may have a good one, although a node writes only one on purpose.
void SharedCopies::Impl::find(Outcome& outcome) {
  Job& job = outcome.job;
  outcome.how = How::missing;
  outcome.why = "there is none";
  for (std::uint32_t i = 0; i < folders.size(); ++i) {
    const Fd folder = folders[i].of(job.node);
    if (!folder && errno == ENOENT) continue;  // it has nothing here
    if (!folder) {
      job.place.folder = i;
      outcome.how = How::failed;
      outcome.why = std::error_code(errno, std::generic_category()).message();
      continue;
    }
    CopyOutcome seen = job.kind == Job::Kind::look
                           ? internal::look_at_copy(folder.get(), job.node, job.object,
                                                    options.pread, job.note, job.size)
                           : internal::read_copy(folder.get(), job.node, job.object, options.pread,
                                                 {job.into, job.size});
    if (seen.how == How::missing) continue;
    job.place.folder = i;
    outcome.how = seen.how;
    outcome.why = std::move(seen.why);
    if (outcome.how == How::done) return;
  }
}

// --- on the user's thread

void SharedCopies::Impl::post(Job job) {
  {
    const std::lock_guard lock(mutex);
    const bool reads_it = job.kind == Job::Kind::look || job.kind == Job::Kind::read;
    (reads_it ? reads : others).push_back(std::move(job));
  }
  wake.notify_one();
}

Result<void> SharedCopies::has_room(std::uint64_t bytes, Time now) {
  const auto place = impl_->plan.place(internal::kCopyHead + bytes, now);
  if (!place) return place.error();
  impl_->plan.release(*place);
  return {};
}

Result<void> SharedCopies::write(ObjectId object, Blob note, std::span<const std::byte> bytes,
                                 Time now) {
  Impl& impl = *impl_;
  const std::uint64_t size = internal::kCopyHead + note.size() + bytes.size();
  auto place = impl.plan.place(size, now);
  if (!place) return place.error();
  const bool fresh = impl.copies.try_emplace(object, Impl::Copy{*place, size}).second;
  TROUPE_ASSERT(fresh, "an object has one copy of its node's in the shared folders");
  Job job;
  job.kind = Job::Kind::write;
  job.node = impl.options.node;
  job.object = object;
  job.place = *place;
  job.note = std::move(note);
  job.from = bytes.data();
  job.size = bytes.size();
  impl.post(std::move(job));
  return {};
}

void SharedCopies::drop(ObjectId object) {
  Impl& impl = *impl_;
  const auto found = impl.copies.find(object);
  if (found == impl.copies.end() || found->second.dropped) return;
  if (found->second.writing) {
    found->second.dropped = true;
    return;
  }
  Job job;
  job.object = object;
  job.place = found->second.place;
  impl.plan.release(found->second.place);
  impl.copies.erase(found);
  impl.post(std::move(job));
}

void SharedCopies::look(NodeId node, ObjectId object) {
  Job job;
  job.kind = Job::Kind::look;
  job.node = node;
  job.object = object;
  impl_->post(std::move(job));
}

void SharedCopies::read(NodeId node, ObjectId object, std::span<std::byte> into) {
  Job job;
  job.kind = Job::Kind::read;
  job.node = node;
  job.object = object;
  job.into = into.data();
  job.size = into.size();
  impl_->post(std::move(job));
}

int SharedCopies::fd() const noexcept {
  return impl_->event.get();
}

std::vector<CopyDone> SharedCopies::take_done(Time now) {
  Impl& impl = *impl_;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(impl.event.get(), &count, sizeof count);
  std::vector<Outcome> outcomes;
  {
    const std::lock_guard lock(impl.mutex);
    outcomes.swap(impl.outcomes);
  }
  std::vector<CopyDone> done;
  for (Outcome& outcome : outcomes) {
    Job& job = outcome.job;
    if (job.kind == Job::Kind::write) {
      impl.wrote(outcome, now, done);
      continue;
    }
    CopyDone end;
    end.kind = job.kind == Job::Kind::look ? CopyDone::Kind::looked : CopyDone::Kind::read;
    end.node = job.node;
    end.object = job.object;
    if (outcome.how == How::done) {
      if (job.kind == Job::Kind::read) ++impl.stats.read;
      end.note = std::move(job.note);
      end.size = job.size;
    } else {
      // A failed read does not count against the folder in `plan`: it may still be written to.
      if (outcome.how != How::missing) ++impl.stats.errors;
      end.error = impl.unreadable(outcome);
    }
    done.push_back(std::move(end));
  }
  return done;
}

void SharedCopies::Impl::note_failure(std::uint32_t folder) {
  ++stats.errors;
  if (plan.failed(folder)) ++stats.quarantined;
}

Error SharedCopies::Impl::unreadable(const Outcome& outcome) const {
  if (outcome.how == How::missing)
    return Error(Code::object_lost, "its node left no copy of it in the shared spill folders");
  if (outcome.how == How::failed)
    return Error(Code::unavailable, "the shared spill folder " +
                                        folders[outcome.job.place.folder].path() +
                                        " cannot be read: " + outcome.why);
  return Error(Code::object_lost, "the copy of the object in the shared spill folder " +
                                      folders[outcome.job.place.folder].path() +
                                      " is bad: " + outcome.why);
}

void SharedCopies::Impl::wrote(Outcome& outcome, Time now, std::vector<CopyDone>& done) {
  Job& job = outcome.job;
  const auto found = copies.find(job.object);
  Copy& copy = found->second;
  CopyDone end;
  end.node = job.node;
  end.object = job.object;
  if (outcome.how == How::done) {
    ++stats.written;
    copy.writing = false;
    if (std::exchange(copy.dropped, false)) {
      Job drop;
      drop.object = job.object;
      drop.place = copy.place;
      plan.release(copy.place);
      copies.erase(found);
      post(std::move(drop));
    }
    return done.push_back(std::move(end));
  }
  const std::string why = " (" + folders[copy.place.folder].path() + ": " + outcome.why + ")";
  if (outcome.how == How::full)
    plan.full(copy.place.folder, now);
  else
    note_failure(copy.place.folder);
  plan.release(copy.place);
  if (!copy.dropped && ++copy.tries < options.folders.size() + 3) {
    if (auto place = plan.place(copy.size, now)) {
      job.place = copy.place = *place;
      return post(std::move(job));
    }
  }
  copies.erase(found);
  end.error = Error(Code::out_of_disk, "a copy of an object could not be written" + why);
  done.push_back(std::move(end));
}

SharedStats SharedCopies::stats() const {
  SharedStats stats = impl_->stats;
  stats.copies = impl_->copies.size();
  stats.bytes = impl_->plan.bytes();
  return stats;
}

}  // namespace troupe::objectstore

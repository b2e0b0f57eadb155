#include "troupe/runtime/agent/programs.hpp"

#include "troupe/runtime/agent/program_files.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace troupe::agent {
namespace {

constexpr std::size_t kPiece = 256 * 1024;
/// How many files of ended jobs are kept open: a detached actor may start again on another node.
constexpr std::size_t kMaxKeptOpen = 256;

/// A thread that runs work on the disk in the order of post(). Each piece of work returns a
/// function, which the event loop runs after take().
class Disk {
 public:
  using Then = std::function<void()>;
  Disk()
      : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_("troupe-programs", [this] { run(); }) {}
  ~Disk() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  void post(std::function<Then()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }
  int fd() const noexcept { return event_.get(); }
  /// Empties the eventfd first: work that ends between the two steps makes it readable again.
  std::deque<Then> take() {
    std::uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !work_.empty(); });
      if (over_) return;
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      Then then = work();
      lock.lock();
      done_.push_back(std::move(then));
      const std::uint64_t one = 1;
      (void)!write(event_.get(), &one, sizeof one);
    }
  }

  Fd event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Then()>> work_;
  std::deque<Then> done_;
  bool over_ = false;
  SignalMaskedThread thread_;
};

}  // namespace

struct Programs::Impl {
  /// The open files of a local driver's program. Their content is that at the start of the driver,
  /// even if another file has their name since.
  struct Offered {
    std::vector<std::shared_ptr<Fd>> files;
    std::string libraries;  ///< folder
    bool ended = false;
  };
  struct Fetch {
    control::JobRecord job;
    std::vector<std::string> paths;  ///< on this node; an empty one is missing
    std::size_t file = 0;            ///< index of the file that is being fetched
    std::uint64_t offset = 0;
    std::shared_ptr<Fd> fresh;  ///< the incomplete file in the cache
    Time deadline{};
  };

  Out& out;
  NodeId self;
  ProgramsOptions options;
  Time now{};
  std::map<JobId, Offered> offered;
  std::deque<JobId> ended;          ///< jobs of `offered` that have ended, the oldest first
  std::set<JobId> being_described;  ///< without those that were forgotten meanwhile
  std::set<std::pair<NodeId, JobId>> serving;
  std::map<JobId, Fetch> fetches;
  std::map<JobId, std::vector<std::string>> used;  ///< files of the cache, by jobs of this node
  std::unique_ptr<Disk> disk;                      // last: its thread ends first

  Impl(Out& o, NodeId s, ProgramsOptions given)
      : out(o), self(s), options(std::move(given)), disk(new Disk) {}

  std::string fresh_path(const Fetch& fetch) const {
    return options.cache + "/" + fetch.job.files[fetch.file].second + "." + fetch.job.id.str() +
           "." + self.str();
  }

  ~Impl() {
    disk.reset();
    while (!fetches.empty()) drop_fetch(fetches.begin()->first);
  }

  bool drop_fetch(JobId job) {
    const auto at = fetches.find(job);
    if (at == fetches.end()) return false;
    if (at->second.fresh) unlink(fresh_path(at->second).c_str());
    fetches.erase(at);
    return true;
  }
  void fail(JobId job, const Error& error) {
    if (drop_fetch(job)) out.program(job, error);
  }

  void begin(JobId job);
  void next_file(JobId job);
  void ask(Fetch& fetch);
  void on_data(NodeId from, const wire::ProgramData& data, BlobView payload);
  void written(JobId job, const std::shared_ptr<Fd>& file, const Result<void>& result, bool last);
  void end_offer(JobId job);
  void finish(JobId job);
  void serve(NodeId from, const wire::ProgramRequest& request);
};

/// Finds the files that are on this node already, then fetches the others.
void Programs::Impl::begin(JobId job) {
  const Files files = fetches.at(job).job.files;
  disk->post([this, job, files, cache = options.cache]() -> Disk::Then {
    std::vector<std::string> paths;
    for (const auto& [path, digest] : files) {
      std::string cached = cache;
      cached.append("/").append(digest);
      if (has_digest(path, digest))
        paths.push_back(path);
      else if (has_digest(cached, digest))
        paths.push_back(cached);
      else
        paths.emplace_back();
      if (paths.back() == cached) (void)utimensat(AT_FDCWD, cached.c_str(), nullptr, 0);
    }
    return [this, job, paths] {
      const auto at = fetches.find(job);
      if (at == fetches.end() || at->second.fresh) return;
      at->second.paths = paths;
      next_file(job);
    };
  });
}

void Programs::Impl::next_file(JobId job) {
  Fetch& fetch = fetches.at(job);
  fetch.fresh.reset();
  fetch.offset = 0;
  fetch.file = 0;
  while (fetch.file < fetch.paths.size() && !fetch.paths[fetch.file].empty()) ++fetch.file;
  if (fetch.file == fetch.paths.size()) return finish(job);
  if (fetch.job.node == self || !fetch.job.node)
    return fail(job, Error(Code::unavailable,
                           fetch.job.files[fetch.file].first + " has changed since the job began"));
  if (auto made = make_folder(options.cache); !made) return fail(job, made.error());
  fetch.fresh = std::make_shared<Fd>(
      open(fresh_path(fetch).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!*fetch.fresh)
    return fail(
        job, Error(Code::out_of_disk, "cannot write into " + options.cache + ": " + errno_text()));
  ask(fetch);
}

void Programs::Impl::ask(Fetch& fetch) {
  fetch.deadline = now + options.silence;
  out.send(fetch.job.node,
           wire::ProgramRequest{fetch.job.id, static_cast<std::uint32_t>(fetch.file), fetch.offset},
           {});
}

void Programs::Impl::on_data(NodeId from, const wire::ProgramData& data, BlobView payload) {
  const auto at = fetches.find(data.job);
  if (at == fetches.end() || at->second.job.node != from) return;
  Fetch& fetch = at->second;
  if (data.file != fetch.file || data.offset != fetch.offset || !fetch.fresh) return;
  if (data.error) return fail(data.job, Error(*data.error));
  const std::uint64_t end = data.offset + payload.size();
  if (data.bytes > kMaxBytes || end > data.bytes || (payload.empty() && end < data.bytes))
    return fail(data.job, Error(Code::unavailable, "the driver's node sent a piece of no sense"));
  fetch.deadline = Time::max();  // no limit while the disk thread writes the piece
  const bool last = end == data.bytes;
  fetch.offset = end;
  const auto bytes = std::make_shared<Blob>(payload.begin(), payload.end());
  disk->post([this, job = data.job, file = fetch.fresh, bytes, offset = data.offset, last,
              path = fresh_path(fetch),
              whole = options.cache + "/" + fetch.job.files[fetch.file].second,
              digest = fetch.job.files[fetch.file].second]() -> Disk::Then {
    Result<void> result;
    for (std::size_t at = 0; at < bytes->size() && result;) {
      const ssize_t n = pwrite(file->get(), bytes->data() + at, bytes->size() - at,
                               static_cast<off_t>(offset + at));
      if (n <= 0)
        result = Error(Code::out_of_disk, "cannot write " + path + ": " + errno_text());
      else
        at += static_cast<std::size_t>(n);
    }
    if (last && result) {
      const auto found = digest_of(file->get(), path);
      if (!found || *found != digest)
        result =
            Error(Code::unavailable,
                  "a file of the program has changed on the driver's node since the job began");
      else if (fchmod(file->get(), 0500) != 0 || rename(path.c_str(), whole.c_str()) != 0)
        result = Error(Code::out_of_disk, "cannot keep " + whole + ": " + errno_text());
    }
    return [this, job, file, result, last] { written(job, file, result, last); };
  });
}

void Programs::Impl::written(JobId job, const std::shared_ptr<Fd>& file, const Result<void>& result,
                             bool last) {
  const auto at = fetches.find(job);
  if (at == fetches.end() || at->second.fresh != file) return;  // belongs to an earlier fetch
  if (!result) return fail(job, result.error());
  Fetch& fetch = at->second;
  if (!last) return ask(fetch);
  fetch.paths[fetch.file] = options.cache + "/" + fetch.job.files[fetch.file].second;
  next_file(job);
}

void Programs::Impl::finish(JobId job) {
  const Fetch fetch = fetches.at(job);
  fetches.at(job).deadline = Time::max();
  used[job] = fetch.paths;
  std::set<std::string> keep;
  for (const auto& [user, paths] : used) keep.insert(paths.begin(), paths.end());
  disk->post([this, job, fetch, keep, options = options]() -> Disk::Then {
    os::Program program = program_of(fetch.job);
    program.path = fetch.paths.front();
    bool moved = false;
    for (std::size_t i = 0; i < fetch.paths.size(); ++i)
      moved = moved || fetch.paths[i] != fetch.job.files[i].first;
    std::shared_ptr<Error> error;
    if (fetch.paths.size() > 1) {
      auto folder = link_libraries(options.cache, fetch.job.files, fetch.paths);
      if (folder)
        program.libraries = *folder;
      else if (moved)  // else the libraries lie where the driver found them
        error = std::make_shared<Error>(folder.error());
    }
    prune(options.cache, options.cache_bytes, keep);
    return [this, job, program, error] {
      if (fetches.erase(job) == 0) return;
      if (error)
        out.program(job, *error);
      else
        out.program(job, program);
    };
  });
}

void Programs::Impl::serve(NodeId from, const wire::ProgramRequest& request) {
  wire::ProgramData data;
  data.job = request.job;
  data.file = request.file;
  data.offset = request.offset;
  const auto at = offered.find(request.job);
  if (at == offered.end() || request.file >= at->second.files.size()) {
    data.error =
        Error(Code::unavailable, "the job's driver has ended: its program is gone").shared_info();
    return out.send(from, data, {});
  }
  if (!serving.emplace(from, request.job).second) return;  // one piece at a time for each node
  disk->post([this, from, data, file = at->second.files[request.file]]() -> Disk::Then {
    wire::ProgramData answer = data;
    const auto bytes = std::make_shared<Blob>(kPiece);
    struct stat status{};
    ssize_t n = -1;
    if (answer.offset <= kMaxBytes && fstat(file->get(), &status) == 0)
      n = pread(file->get(), bytes->data(), bytes->size(), static_cast<off_t>(answer.offset));
    if (n < 0)
      answer.error =
          Error(Code::unavailable, "the program cannot be read: " + errno_text()).shared_info();
    bytes->resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    answer.bytes = static_cast<std::uint64_t>(status.st_size);
    return [this, from, answer, bytes] {
      serving.erase({from, answer.job});
      out.send(from, answer, *bytes);
    };
  });
}

/// Marks a job as ended. Its files stay open as long as there are few such files, since workers of
/// its detached actors may still be started.
void Programs::Impl::end_offer(JobId job) {
  const auto at = offered.find(job);
  if (at == offered.end() || std::exchange(at->second.ended, true)) return;
  ended.push_back(job);
  std::size_t open = 0;
  for (const JobId id : ended) open += offered.at(id).files.size();
  for (; open > kMaxKeptOpen; ended.pop_front()) {
    open -= offered.at(ended.front()).files.size();
    offered.erase(ended.front());
  }
}

Programs::Programs(Out& out, NodeId self, ProgramsOptions options)
    : impl_(new Impl(out, self, std::move(options))) {}
Programs::~Programs() = default;

void Programs::describe(JobId job, const std::string& path, std::vector<std::string> libraries,
                        Time now) {
  impl_->now = now;
  libraries.insert(libraries.begin(), path);
  if (libraries.size() > kMaxFiles)
    return impl_->disk->post([impl = impl_.get(), job]() -> Disk::Then {
      return [impl, job] {
        impl->out.described(job, Error(Code::invalid_argument,
                                       "a program brings at most 63 shared objects of its own"));
      };
    });
  impl_->being_described.insert(job);
  impl_->disk->post([impl = impl_.get(), job, paths = std::move(libraries),
                     cache = impl_->options.cache]() -> Disk::Then {
    Impl::Offered opened;
    Result<Files> files = Files();
    std::uint64_t bytes = 0;
    for (const std::string& path : paths) {
      auto file = open_regular(path);
      struct stat status{};
      if (file && fstat(file->get(), &status) == 0)
        bytes += static_cast<std::uint64_t>(status.st_size);
      auto digest = file ? digest_of(file->get(), path) : Result<std::string>(file.error());
      if (digest && bytes > kMaxBytes)
        digest = Error(Code::invalid_argument,
                       "the program and its shared objects have more than 4 GiB");
      if (!digest) {
        files = digest.error();
        break;
      }
      files.value().emplace_back(path, *digest);
      opened.files.push_back(std::make_shared<Fd>(std::move(*file)));
    }
    if (files && paths.size() > 1) {
      const auto folder = make_folder(cache) ? link_libraries(cache, *files, paths)
                                             : Result<std::string>(std::string());
      if (folder) opened.libraries = *folder;
    }
    return [impl, job, opened, files] {
      if (impl->being_described.erase(job) == 0) return;
      if (files) impl->offered[job] = opened;
      impl->out.described(job, files);
    };
  });
}

os::Program Programs::program_of(const control::JobRecord& job) {
  return {job.program, job.arguments, "",
          os::SignalState{job.ignored_signals, job.blocked_signals}};
}

std::optional<os::Program> Programs::local(JobId job) const {
  const auto at = impl_->offered.find(job);
  if (at == impl_->offered.end()) return std::nullopt;
  return os::Program{
      "/proc/self/fd/" + std::to_string(at->second.files.front()->get()), {}, at->second.libraries};
}

void Programs::want(const control::JobRecord& job, Time now) {
  impl_->now = now;
  if (impl_->fetches.count(job.id) != 0) return;
  if (impl_->offered.count(job.id) != 0)  // the driver is of this node; see local()
    return impl_->disk->post([impl = impl_.get(), job]() -> Disk::Then {
      return [impl, job] { impl->out.program(job.id, program_of(job)); };
    });
  Impl::Fetch& fetch = impl_->fetches[job.id];
  fetch.job = job;
  fetch.deadline = Time::max();
  bool good = !job.files.empty() && job.files.size() <= kMaxFiles;
  for (const auto& [path, digest] : job.files)
    good = good && is_digest(digest) && path.size() > 1 && path.front() == '/' &&
           path.find('\0') == std::string::npos && !file_name_of(path).empty();
  if (good) return impl_->begin(job.id);
  impl_->disk->post([impl = impl_.get(), id = job.id]() -> Disk::Then {
    return [impl, id] {
      impl->fail(id, Error(Code::invalid_argument, "the job's record names no program"));
    };
  });
}

void Programs::forget(JobId job) {
  impl_->being_described.erase(job);
  impl_->end_offer(job);
  impl_->drop_fetch(job);
  impl_->used.erase(job);
}

bool Programs::on_message(NodeId from, const wire::PeerMessage& message, BlobView payload,
                          Time now) {
  impl_->now = now;
  if (const auto* request = std::get_if<wire::ProgramRequest>(&message))
    return impl_->serve(from, *request), true;
  if (const auto* data = std::get_if<wire::ProgramData>(&message))
    return impl_->on_data(from, *data, payload), true;
  return false;
}

void Programs::node_died(NodeId node, Time now) {
  impl_->now = now;
  // A request of the node's earlier life may still be on the disk thread. It must not block the
  // first request of the next life.
  std::erase_if(impl_->serving, [node](const auto& one) { return one.first == node; });
  std::vector<JobId> over;
  for (const auto& [job, fetch] : impl_->fetches)
    if (fetch.job.node == node && fetch.fresh) over.push_back(job);
  for (const JobId job : over)
    impl_->fail(job, Error(Code::unavailable, "the node of the job's driver is gone"));
}

int Programs::fd() const noexcept {
  return impl_->disk->fd();
}

void Programs::poll(Time now) {
  impl_->now = now;
  for (const auto& then : impl_->disk->take()) then();
  std::vector<JobId> silent;
  for (const auto& [job, fetch] : impl_->fetches)
    if (fetch.deadline <= now) silent.push_back(job);
  for (const JobId job : silent)
    impl_->fail(job, Error(Code::unavailable,
                           "the node of the job's driver sent nothing of the program for " +
                               std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                                                  impl_->options.silence)
                                                  .count()) +
                               " s"));
}

Time Programs::next_deadline() const {
  Time next = Time::max();
  for (const auto& [job, fetch] : impl_->fetches) next = std::min(next, fetch.deadline);
  return next;
}

}  // namespace troupe::agent

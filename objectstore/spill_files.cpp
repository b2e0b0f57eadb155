#include "troupe/objectstore/spill_files.hpp"

#include "troupe/objectstore/internal/disk_thread.hpp"

#include <fcntl.h>
#include <cerrno>
#include <system_error>
#include <utility>

namespace troupe::objectstore {

using internal::DiskJob;
using internal::DiskOutcome;
using internal::DiskThread;

struct SpillFiles::Impl {
  struct Object {
    SpillPlace place;
    const std::byte* from = nullptr;  ///< while it is being written
    std::uint64_t size = 0;
    std::uint64_t checksum = 0;
    std::size_t tries = 0;  ///< to write it
    bool dropped = false;   ///< drop() came during the write; removed when that has ended
  };

  Impl(SpillOptions o, std::vector<Fd> folders)
      : options(std::move(o)),
        plan({static_cast<std::uint32_t>(options.folders.size()), options.quota, options.file, 3,
              options.full}),
        disk(options, std::move(folders)) {}

  void post_write(SpillId id, const Object& object);
  void release(const SpillPlace& place);
  void wrote(const DiskOutcome& outcome, Time now, std::vector<SpillDone>& done);
  void read(const DiskOutcome& outcome, std::vector<SpillDone>& done);
  void note_failure(const DiskOutcome& outcome);
  /// Returns the error of a write without a place, with the last failure of a folder added.
  Error nowhere(const Error& error) const {
    if (last_failure.empty()) return error;
    return Error(error.code(), error.message() + "; the last that failed is " + last_failure);
  }
  std::string folder_of(const DiskOutcome& outcome) const {
    return options.folders[outcome.job.place.folder];
  }

  SpillOptions options;
  SpillPlan plan;
  SpillStats stats;
  std::map<SpillId, Object> objects;
  SpillId last_id = 0;
  std::string last_failure;  ///< of a folder, a full disk not counted
  DiskThread disk;
};

SpillFiles::SpillFiles(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SpillFiles::~SpillFiles() = default;

Result<std::unique_ptr<SpillFiles>> SpillFiles::open(SpillOptions options) {
  if (options.folders.empty())
    return Error(Code::invalid_argument, "spilling needs at least one folder");
  std::vector<Fd> folders;
  for (const std::string& name : options.folders) {
    Fd folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const Fd probe(folder ? internal::unnamed_file(folder.get()) : -1);
    if (!probe)
      return Error(Code::invalid_argument,
                   "\"" + name + "\" cannot be a spill folder: " +
                       std::error_code(errno, std::generic_category()).message());
    folders.push_back(std::move(folder));
  }
  return std::unique_ptr<SpillFiles>(
      new SpillFiles(std::make_unique<Impl>(std::move(options), std::move(folders))));
}

Result<SpillId> SpillFiles::write(std::span<const std::byte> bytes, Time now) {
  auto place = impl_->plan.place(bytes.size(), now);
  if (!place) return impl_->nowhere(place.error());
  const SpillId id = ++impl_->last_id;
  Impl::Object& object = impl_->objects[id];
  object.place = *place;
  object.from = bytes.data();
  object.size = bytes.size();
  impl_->post_write(id, object);
  return id;
}

void SpillFiles::Impl::post_write(SpillId id, const Object& object) {
  DiskJob job;
  job.kind = DiskJob::Kind::write;
  job.id = id;
  job.place = object.place;
  job.from = object.from;
  job.size = object.size;
  disk.post(job);
}

void SpillFiles::read(SpillId id, std::span<std::byte> into) {
  const auto found = impl_->objects.find(id);
  TROUPE_ASSERT(found != impl_->objects.end() && found->second.from == nullptr &&
                    !found->second.dropped && found->second.size == into.size(),
                "a read follows the end of its write, and has room for just its bytes");
  DiskJob job;
  job.kind = DiskJob::Kind::read;
  job.id = id;
  job.place = found->second.place;
  job.into = into.data();
  job.size = into.size();
  job.checksum = found->second.checksum;
  impl_->disk.post(job);
}

void SpillFiles::drop(SpillId id) {
  const auto found = impl_->objects.find(id);
  TROUPE_ASSERT(found != impl_->objects.end() && !found->second.dropped,
                "a spilled object is dropped once");
  if (found->second.from != nullptr) {
    found->second.dropped = true;
    return;
  }
  impl_->release(found->second.place);
  impl_->objects.erase(found);
}

void SpillFiles::Impl::release(const SpillPlace& place) {
  DiskJob job;
  job.kind = plan.release(place) ? DiskJob::Kind::close : DiskJob::Kind::punch;
  job.place = place;
  disk.post(job);
}

std::uint64_t SpillFiles::size_of(SpillId id) const {
  return impl_->objects.at(id).size;
}

int SpillFiles::fd() const noexcept {
  return impl_->disk.fd();
}

std::vector<SpillDone> SpillFiles::take_done(Time now) {
  std::vector<SpillDone> done;
  for (const DiskOutcome& outcome : impl_->disk.take()) {
    if (outcome.job.kind == DiskJob::Kind::write)
      impl_->wrote(outcome, now, done);
    else
      impl_->read(outcome, done);
  }
  return done;
}

void SpillFiles::Impl::note_failure(const DiskOutcome& outcome) {
  ++stats.errors;
  last_failure = folder_of(outcome) + ": " + outcome.why;
  if (plan.failed(outcome.job.place.folder)) ++stats.quarantined;
}

void SpillFiles::Impl::wrote(const DiskOutcome& outcome, Time now, std::vector<SpillDone>& done) {
  const SpillId id = outcome.job.id;
  const auto found = objects.find(id);
  Object& object = found->second;
  SpillDone end{SpillDone::Kind::wrote, id, std::nullopt};
  if (outcome.how == DiskOutcome::How::done) {
    object.checksum = outcome.job.checksum;
    object.from = nullptr;
    ++stats.written_objects;
    stats.written_bytes += object.size;
    if (object.dropped) {
      release(object.place);
      objects.erase(found);
    }
    return done.push_back(std::move(end));
  }
  if (outcome.how == DiskOutcome::How::full)
    plan.full(object.place.folder, now);
  else
    note_failure(outcome);
  release(object.place);
  if (!object.dropped) {
    const std::string why = " (" + folder_of(outcome) + ": " + outcome.why + ")";
    if (++object.tries >= options.folders.size() + 3) {
      end.error = Error(Code::out_of_disk, "an object could not be spilled" + why);
    } else if (auto place = plan.place(object.size, now)) {
      object.place = *place;
      return post_write(id, object);
    } else {
      end.error = Error(Code::out_of_disk, place.error().message() + why);
    }
  }
  objects.erase(found);
  done.push_back(std::move(end));
}

void SpillFiles::Impl::read(const DiskOutcome& outcome, std::vector<SpillDone>& done) {
  SpillDone end{SpillDone::Kind::read, outcome.job.id, std::nullopt};
  if (outcome.how == DiskOutcome::How::done) {
    ++stats.read_objects;
    stats.read_bytes += outcome.job.size;
  } else {
    note_failure(outcome);
    end.error = Error(Code::object_lost, "the copy of the object in the spill folder " +
                                             folder_of(outcome) + " is bad: " + outcome.why);
  }
  done.push_back(std::move(end));
}

SpillStats SpillFiles::stats() const {
  SpillStats stats = impl_->stats;
  stats.objects = impl_->objects.size();
  stats.bytes = impl_->plan.bytes();
  stats.files = impl_->plan.files();
  return stats;
}

}  // namespace troupe::objectstore

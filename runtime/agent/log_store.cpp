#include "troupe/runtime/agent/log_store.hpp"

#include <algorithm>

namespace troupe::agent {

LogStore::LogStore(Limits limits) : limits_(limits) {
  limits_.file = std::max<std::uint64_t>(std::min(limits_.file, limits_.total / 4), 1);
  limits_.files_of_job = std::max<std::size_t>(limits_.files_of_job, 1);
}

LogStore::Plan LogStore::plan(const std::string& name, std::uint64_t bytes) {
  Plan plan;
  if (jobs_.count(name) == 0) forget_one_of_many();
  Job& job = jobs_[name];
  job.used = ++uses_;
  const bool is_full = job.files.empty() || (job.files.back().bytes != 0 &&
                                             job.files.back().bytes + bytes > limits_.file);
  if (is_full) {
    while (job.files.size() >= limits_.files_of_job) remove_first(name, plan);
    job.files.push_back({++job.last, job.end, 0, ++uses_});
    ++files_;
  }
  make_room(name, bytes, plan);
  const Kept& file = job.files.back();
  plan.file = {name, file.number};
  plan.at = file.bytes;
  return plan;
}

/// Forgets the job without files that was written longest ago, if there are too many.
void LogStore::forget_one_of_many() {
  if (jobs_.size() < 2 * limits_.files) return;
  auto oldest = jobs_.end();
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at)
    if (at->second.files.empty() &&
        (oldest == jobs_.end() || at->second.used < oldest->second.used))
      oldest = at;
  if (oldest != jobs_.end()) jobs_.erase(oldest);
}

/// Removes the files that were written longest ago, until the bytes fit. The file that is to be
/// written stays.
void LogStore::make_room(const std::string& name, std::uint64_t bytes, Plan& plan) {
  while (total_ + bytes > limits_.total || files_ > limits_.files) {
    const std::string* oldest = nullptr;
    std::uint64_t used = UINT64_MAX;
    for (const auto& [other, job] : jobs_) {
      if (job.files.size() < (other == name ? 2U : 1U) || job.files.front().used >= used) continue;
      used = job.files.front().used;
      oldest = &other;
    }
    if (oldest == nullptr) return;
    remove_first(*oldest, plan);
  }
}

void LogStore::remove_first(const std::string& name, Plan& plan) {
  Job& job = jobs_.at(name);
  plan.remove.push_back({name, job.files.front().number});
  total_ -= job.files.front().bytes;
  job.files.pop_front();
  --files_;
}

void LogStore::written(const File& file, std::uint64_t bytes) {
  const auto at = jobs_.find(file.job);
  if (at == jobs_.end() || at->second.files.empty()) return;
  Kept& last = at->second.files.back();
  if (last.number != file.number) return;
  last.bytes += bytes;
  last.used = ++uses_;
  at->second.end += bytes;
  total_ += bytes;
}

std::optional<LogStore::Place> LogStore::find(const std::string& name, std::uint64_t offset,
                                              std::uint64_t most) const {
  const auto at = jobs_.find(name);
  if (at == jobs_.end()) return std::nullopt;
  for (const Kept& file : at->second.files) {
    if (offset >= file.offset + file.bytes) continue;
    const std::uint64_t begin = std::max(offset, file.offset);
    Place place;
    place.file = {name, file.number};
    place.at = begin - file.offset;
    place.bytes = std::min(most, file.bytes - place.at);
    place.offset = begin;
    return place;
  }
  return std::nullopt;
}

std::uint64_t LogStore::end(const std::string& name) const {
  const auto at = jobs_.find(name);
  return at == jobs_.end() ? 0 : at->second.end;
}

}  // namespace troupe::agent

#include "troupe/runtime/agent/object_accounting.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <algorithm>
#include <functional>

namespace troupe::agent {

std::uint32_t ObjectAccounting::site(std::string_view text) {
  if (text.empty()) return 0;
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  if (sites_.size() == kMostSites) return 0;
  const auto number = static_cast<std::uint32_t>(sites_.size());
  sites_.emplace_back().text = text;
  numbers_.emplace(text, number);
  return number;
}

void ObjectAccounting::made(JobNumber job, std::uint32_t site, std::uint64_t bytes, Time now) {
  roll(now);
  if (bytes > 0) jobs_[job].bytes += bytes;
  Row& row = sites_[site];
  ++row.objects;
  ++row.made;
  row.bytes += bytes;
}

void ObjectAccounting::freed(JobNumber job, std::uint32_t site, std::uint64_t bytes, Time now) {
  roll(now);
  const auto sum = jobs_.find(job);
  Row& row = sites_[site];
  TROUPE_ASSERT((bytes == 0 || (sum != jobs_.end() && sum->second.bytes >= bytes)) &&
                    row.objects > 0 && row.bytes >= bytes,
                "what is freed was counted when it was made");
  if (bytes > 0) {
    sum->second.freed += bytes;
    if ((sum->second.bytes -= bytes) == 0) jobs_.erase(sum);
  }
  row.bytes -= bytes;
  row.least = std::min(row.least, --row.objects);
}

std::uint64_t ObjectAccounting::bytes_of(JobNumber job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.bytes;
}

std::uint64_t ObjectAccounting::freed_of(JobNumber job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.freed;
}

/// Ends the spans that are over. It is called before each change of a number and before each look,
/// so spans may end late, but each of them with its own least numbers.
void ObjectAccounting::roll(Time now) {
  for (std::size_t spans = 0; now >= span_ends_; ++spans) {
    if (spans == kSpans) {  // all of `before` is of idle spans; skip the rest of them
      span_ends_ = now;
    } else {
      for (Row& row : sites_) {
        std::copy_backward(row.before.begin(), row.before.end() - 1, row.before.end());
        row.before.front() = row.least;
        row.least = row.objects;
      }
    }
    span_ends_ += span_;
  }
}

void ObjectAccounting::each_site(
    Time now, const std::function<void(std::uint32_t number, const Site&)>& look_at) {
  roll(now);
  for (Row& row : sites_) {
    if (row.objects == 0) continue;
    const auto falls =
        std::adjacent_find(row.before.rbegin(), row.before.rend(), std::greater_equal<>());
    row.grows = falls == row.before.rend() && row.objects >= row.before.front();
    look_at(static_cast<std::uint32_t>(&row - sites_.data()), row);
  }
}

void ObjectAccounting::each_job(
    const std::function<void(JobNumber job, std::uint64_t bytes)>& look_at) const {
  for (const auto& [job, sum] : jobs_) look_at(job, sum.bytes);
}

}  // namespace troupe::agent

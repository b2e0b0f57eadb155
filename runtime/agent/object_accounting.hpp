/// Counts the objects of this node by their makers: bytes of each job, and objects of each call
/// site. A plain state machine.
///
///     const std::uint32_t site = accounting.site("main.cpp:12");
///     accounting.made(job, site, bytes, now);       // the object was handed to the agent
///     accounting.freed(job, site, bytes, now);
///     if (accounting.bytes_of(job) + bytes > quota) refuse();
///
/// An object counts until it is freed, in memory and on disk alike. Time is divided into spans of
/// `span`. A site *grows* when, three times in a row, its least number of objects in a span was
/// above that of the span before. The least number of a site whose objects come and go falls back.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::agent {

class ObjectAccounting {
 public:
  static constexpr std::size_t kMostSites = 1 << 16;  ///< further ones are unknown
  explicit ObjectAccounting(Duration span = std::chrono::seconds(10)) : span_(span) {}

  /// The number of a call site; 0 is the unknown one.
  std::uint32_t site(std::string_view text);
  void made(JobNumber job, std::uint32_t site, std::uint64_t bytes, Time now);
  void freed(JobNumber job, std::uint32_t site, std::uint64_t bytes, Time now);

  std::uint64_t bytes_of(JobNumber job) const;
  /// Sum of the bytes of the job that have been freed; begins anew when the job has no bytes left.
  std::uint64_t freed_of(JobNumber job) const;
  const std::string& text_of(std::uint32_t site) const { return sites_[site].text; }
  struct Site {
    std::string text;
    std::uint64_t objects = 0, bytes = 0;
    std::uint64_t made = 0;  ///< since the start
    bool grows = false;
  };
  /// Visits the sites that have objects. O(sites).
  void each_site(Time now, const std::function<void(std::uint32_t number, const Site&)>& look_at);
  /// Visits the jobs that have bytes, in order of their numbers.
  void each_job(const std::function<void(JobNumber job, std::uint64_t bytes)>& look_at) const;

 private:
  static constexpr std::size_t kSpans = 4;
  struct Row : Site {
    std::uint64_t least = 0;  ///< least number of objects in the present span
    /// Least numbers of the last spans, the newest first.
    std::array<std::uint64_t, kSpans> before{};
  };
  void roll(Time now);

  const Duration span_;
  std::vector<Row> sites_{1};
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  struct Sum {
    std::uint64_t bytes = 0, freed = 0;
  };
  std::map<JobNumber, Sum> jobs_;
  Time span_ends_{};
};

}  // namespace troupe::agent

/// Who made the objects of this node: bytes of each job, and objects of each call site. A plain
/// state machine.
///
///     const std::uint32_t site = accounting.site("main.cpp:12");
///     accounting.made(job, site, bytes, now);       // it was handed over
///     accounting.freed(job, site, bytes);
///     if (accounting.bytes_of(job) + bytes > quota) refuse();
///
/// An object counts until it is freed, in memory and on disk alike. A site *grows* when of each of
/// the last three spans of `span` the least number of its objects was above that of the span
/// before: what comes and goes falls back in between.
#pragma once

#include "troupe/runtime/base/clock.hpp"

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

  /// The number of a place; 0 is the unknown one.
  std::uint32_t site(std::string_view text);
  void made(std::uint64_t job, std::uint32_t site, std::uint64_t bytes, Time now);
  void freed(std::uint64_t job, std::uint32_t site, std::uint64_t bytes);

  std::uint64_t bytes_of(std::uint64_t job) const;
  /// Bytes of the job's that have been freed, as long as it has any.
  std::uint64_t freed_of(std::uint64_t job) const;
  const std::string& text_of(std::uint32_t site) const { return sites_[site].text; }
  struct Site {
    std::string text;
    std::uint64_t objects = 0, bytes = 0;
    std::uint64_t made = 0;  ///< since the start
    bool grows = false;
  };
  /// Those that have objects. O(sites).
  void each_site(Time now, const std::function<void(std::uint32_t number, const Site&)>& look_at);
  /// Those that have bytes, in their order.
  void each_job(const std::function<void(std::uint64_t job, std::uint64_t bytes)>& look_at) const;

 private:
  static constexpr std::size_t kSpans = 4;
  struct Row : Site {
    std::uint64_t least = 0;  ///< objects in this span
    /// Of the last spans, the newest first.
    std::array<std::uint64_t, kSpans> before{};
  };
  void roll(Time now);

  const Duration span_;
  std::vector<Row> sites_{1};
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  struct Sum {
    std::uint64_t bytes = 0, freed = 0;
  };
  std::map<std::uint64_t, Sum> jobs_;
  Time span_ends_{};
};

}  // namespace troupe::agent

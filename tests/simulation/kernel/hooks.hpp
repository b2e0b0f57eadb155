/// Connects hooks in product code to the schedule that runs on this thread: the seed that is
/// printed before an abort, TROUPE_BUGGIFY points and planted mutants.
///
///     sim::ScheduleScope scope(seed, share_of_live_points);
///     sim::MutantScope bug("link.accept_duplicates");   // the simulation must now fail
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/base/random.hpp"

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace troupe::sim {

/// Installs the hooks for one schedule. A process runs one schedule at a time; scopes do not
/// nest.
class ScheduleScope {
 public:
  ScheduleScope(std::uint64_t seed, double live_points) noexcept
      : seed_(seed), live_points_(live_points), random_(seed ^ 0x6275676769667921ULL) {
    TROUPE_ASSERT(current_ == nullptr, "two simulated schedules at once in one process");
    current_ = this;
    set_assert_hook(&print_seed);
    simulation_hooks.buggify = &buggify;
  }
  ~ScheduleScope() {
    simulation_hooks.buggify = nullptr;
    set_assert_hook(nullptr);
    current_ = nullptr;
  }
  ScheduleScope(const ScheduleScope&) = delete;
  ScheduleScope& operator=(const ScheduleScope&) = delete;

  /// Disables all TROUPE_BUGGIFY points, for the phase after the faults.
  void calm() noexcept { live_points_ = 0; }
  std::uint64_t buggified() const noexcept { return buggified_; }

 private:
  static void print_seed() {
    if (current_ == nullptr) return;
    std::fprintf(stderr, "simulation seed %llu (replay: TROUPE_SIM_SEED=%llu)\n",
                 static_cast<unsigned long long>(current_->seed_),
                 static_cast<unsigned long long>(current_->seed_));
  }
  /// Decides whether a TROUPE_BUGGIFY point fires. A hash of seed and name decides whether the
  /// point is live in this schedule. A live point fires with the given probability.
  static bool buggify(const char* name, double probability) {
    ScheduleScope* s = current_;
    if (s == nullptr || s->live_points_ <= 0) return false;
    std::uint64_t point = s->seed_;
    for (const char* c = name; *c != 0; ++c)
      point = point * 1099511628211ULL + static_cast<unsigned char>(*c);
    if (Random(point).uniform() >= s->live_points_ || !s->random_.chance(probability)) return false;
    ++s->buggified_;
    return true;
  }

  inline static ScheduleScope* current_ = nullptr;
  std::uint64_t seed_;
  double live_points_;
  Random random_;
  std::uint64_t buggified_ = 0;
};

/// Plants one TROUPE_MUTANT for the lifetime of this object.
class MutantScope {
 public:
  explicit MutantScope(std::string_view name) noexcept {
    name_ = name;
    reached_ = false;
    simulation_hooks.mutant = [](const char* asked) {
      const bool mine = name_ == asked;
      reached_ = reached_ || mine;
      return mine;
    };
  }
  ~MutantScope() { simulation_hooks.mutant = nullptr; }
  MutantScope(const MutantScope&) = delete;
  MutantScope& operator=(const MutantScope&) = delete;
  /// Returns whether product code has reached the planted mutant.
  bool reached() const noexcept { return reached_; }

 private:
  inline static std::string_view name_;
  inline static bool reached_ = false;
};

}  // namespace troupe::sim

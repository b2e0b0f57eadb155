/// The load as the chaos program sees it: a child that receives the faults' marks and reports the
/// results of its work.
///
///     Driver driver(program, file, ledger, seed, canary, log);
///     driver.mark(1, injected);  double ms = driver.recovered(1, 40s);
#pragma once

#include "tests/chaos/processes.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace chaos {

struct Work {
  std::uint64_t tasks = 0, calls = 0, objects = 0, records = 0;
  std::uint64_t unknown = 0, refused = 0, ended = 0, gone = 0, no_space = 0;
  Work& operator+=(const Work& other);
  Work operator-(const Work& other) const;
};

/// A broken promise: lost, wrong, hung or duplicated work.
struct Bad {
  std::string what, text;
};

class Driver {
 public:
  Driver(const std::string& program, const std::string& file, const std::string& ledger,
         std::uint64_t seed, const std::string& canary, const std::string& log);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool ready(std::chrono::milliseconds bound);
  void say(const std::string& line);
  void mark(std::uint64_t number, Clock::time_point injected);
  /// Returns the milliseconds from the injection until everything worked again, or nothing if
  /// that took longer than `bound`.
  std::optional<double> recovered(std::uint64_t number, std::chrono::milliseconds bound);
  /// Ends the load as a user does. Returns false when it did not end well.
  bool finish();
  /// Reads the lines that the load has written so far.
  void listen();

  int pid() const noexcept { return child_.pid; }
  const Work& work() const noexcept { return work_; }
  std::vector<Bad> take_bad() { return std::exchange(bad_, {}); }
  std::map<int, int> actors;   ///< the pid of each actor's process
  std::optional<double> home;  ///< its node is lost: ms until all its waits ended
  std::map<std::uint64_t, std::string> hogged;

 private:
  void hear(const std::string& line);

  Child child_;
  std::string heard_;
  Work work_;
  std::vector<Bad> bad_;
  std::map<std::uint64_t, double> recovered_;
  bool ready_ = false, ended_ = false;
};

}  // namespace chaos

/// Work of the program whose large values lie at other nodes than the process that had them made.
/// Their bytes may be lost while that process lives, or after its end: then its node's agent has
/// another process make them again.
///
///     LineageWork work(ctx, baton, seed, did);
///     work.act();     // some piece of it
///     work.end();     // judges what is left, and lets go of everything
#pragma once

#include "tests/simulation/machine/baton.hpp"
#include "tests/simulation/machine/program.hpp"

#include <vector>

namespace troupe::sim::machine {

class LineageWork {
 public:
  LineageWork(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did);
  LineageWork(const LineageWork&) = delete;
  LineageWork& operator=(const LineageWork&) = delete;
  void act();
  void end();

 private:
  using Values = std::vector<std::uint64_t>;
  /// A value that a task has made by further tasks. The process of that task owns it.
  struct Made {
    Ref<Values> ref;
    std::uint64_t maker = 0;  ///< the task
    std::uint64_t expected = 0;
  };
  /// What a task has read of such a value.
  struct Read {
    Ref<std::uint64_t> ref;
    std::uint64_t maker = 0, expected = 0;
  };
  void make();
  template <class Value>
  void judge(const Value& one);
  void excuse(const Error& error, std::uint64_t maker);

  const Context& ctx_;
  Baton& baton_;
  Random random_;
  Did& did_;
  std::uint64_t next_id_ = std::uint64_t{1} << 50;
  std::vector<Made> made_;
  std::vector<Read> read_;
};

}  // namespace troupe::sim::machine

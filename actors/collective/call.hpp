/// Call: names the operations of a group after the call of the program that makes them. When ranks
/// make different calls, the error then names these: "rank 0 called checkpoint() while rank 1
/// called step()".
///
///     const Call call(mesh.world.get(), "step()");
///     mesh.dp->all_reduce(gradients).wait();
///
/// Ranks compare the names where operations meet, and every 50 ms while one waits for another, in
/// any group that shares the memory of the whole one. So a difference is found even where two ranks
/// wait in different groups. It ends the group with InvalidArgument (COLL-1). A call costs some
/// writes to shared memory, and no meeting.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::collective {

class Communicator;
namespace internal {
class CallLog;
}

/// A call of a program, from its construction to its destruction on one thread. A call inside
/// another one belongs to the outer call, whose name counts.
class TROUPE_API Call {
 public:
  /// Whether all ranks make the call. One that a rank may make alone only gives its name to the
  /// calls inside it.
  enum class Made : std::uint8_t { by_all_ranks, by_some_rank };

  /// `whole` is a group of all ranks that share memory. Null, or a split of some of them: the call
  /// has no effect. `name` must outlive the call, and is cut at 24 bytes.
  Call(Communicator* whole, const char* name, Made made = Made::by_all_ranks) noexcept;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

 private:
  friend class Communicator;
  /// Returns the stamp of this thread's call in the memory of `log`; 0: there is none.
  static std::uint64_t stamp_in(const internal::CallLog* log) noexcept;
  bool is_in(const internal::CallLog& log) const noexcept;

  internal::CallLog* log_;
  const char* name_;
  Call* outer_;  // of this thread
  std::uint64_t stamp_ = 0;
};

}  // namespace troupe::collective

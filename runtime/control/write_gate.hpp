/// Decides whether control takes a request that writes: not while its disk is nearly full, nor
/// while the disk is far behind. A plain state machine; Service asks it before a core takes such a
/// request.
///
///     gate.add(output.writes);                       // they wait for a commit
///     if (auto why = gate.refusal()) return refuse(why);
///     gate.on_commit();                              // a commit has taken all that waited
///     gate.set_space(store.accepts_writes());        // while no commit is under way
///
/// Deaths, ends and fences are written nevertheless.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/store.hpp"

#include <cstddef>
#include <memory>

namespace troupe::control {

class WriteGate {
 public:
  /// `most`: bytes that may wait for a commit.
  explicit WriteGate(std::size_t most) : most_(most) {}

  void add(const Batch& batch) {
    for (const Write& write : batch.writes())
      waiting_ += write.key.size() + (write.value ? write.value->size() : 0) + 64;
  }
  void on_commit() noexcept { waiting_ = 0; }
  /// The store's answer counts until the next one.
  void set_space(bool enough) noexcept { has_space_ = enough; }
  /// Returns why a request that writes cannot be taken now; null when it can.
  std::shared_ptr<const ErrorInfo> refusal() const;

 private:
  std::size_t most_;
  std::size_t waiting_ = 0;  ///< bytes, roughly, of writes that no commit has taken yet
  bool has_space_ = true;
};

}  // namespace troupe::control

/// What control's cores know about the owners of actors and jobs: the facts by which Authority
/// judges messages. A plain state machine without a state.
///
///     Claims claims(directory, jobs);
///     Authority authority(claims);
///
/// The answer is no only when the subject is known to be another's. What control has forgotten, or
/// has not heard of yet, is nobody's.
#pragma once

#include "troupe/runtime/control/authority.hpp"
#include "troupe/runtime/control/directory.hpp"
#include "troupe/runtime/control/jobs.hpp"

#include <cstdint>

namespace troupe::control {

class Claims final : public Authority::Facts {
 public:
  /// Both outlive the claims.
  Claims(const Directory& actors, const Jobs& jobs) : actors_(actors), jobs_(jobs) {}

  bool may_tell_of(NodeId from, ActorId actor, std::uint64_t life) const override;
  bool made(NodeId from, ActorId actor) const override;
  bool may_make(NodeId from, const SpawnActor& spawn) const override;
  /// Goes by the job that the message names. The killer's agent fills it in, since it knows its
  /// processes.
  bool may_kill(NodeId from, const KillActor& kill) const override;
  bool may_start(NodeId from, JobId job) const override;
  bool may_end(NodeId from, JobId job) const override;

 private:
  const Directory& actors_;
  const Jobs& jobs_;
};

}  // namespace troupe::control

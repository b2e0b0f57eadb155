/// The nodes whose keys control accepts although they are no members: those that have joined by a
/// token and not registered yet, and the dead that must still hear it. Also the tokens that are
/// spent. A plain state machine; Service asks it about each join.
///
///     auto admissions = Admissions::recover(store, {}, now).value();
///     if (auto why = admissions.refusal(token, node, is_member)) return refuse(why);
///     commit(admissions.join(token, node));          // then admit the node, and
///     admissions.expire_later(node.id, now);
///     commit(admissions.forget(node.id));            // it has registered
///     while (auto node = admissions.pop_expired(now)) revoke(*node);
///
/// A token admits one node, for ever. The same node may join with it again, since the first answer
/// may be lost. A node's time to register begins anew with each control, which admits it again.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/store.hpp"

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace troupe::control {

struct AdmissionsOptions {
  /// How long control keeps the key of a dead node, so that the node can be told that it is dead,
  /// and the key of a node that has joined and does not register. Their agents end sooner.
  Duration revoke_after = std::chrono::seconds(75);
  /// How many nodes may have joined and not registered yet.
  std::size_t max_joined = 1024;
};

class Admissions {
 public:
  /// Reads the records of earlier controls. Errors: invalid_argument when one cannot be read.
  static Result<Admissions> recover(Store& store, const AdmissionsOptions& options, Time now);

  /// Returns why the node may not join with this token; null when it may.
  std::shared_ptr<const ErrorInfo> refusal(const std::string& token, const NodeDescription& node,
                                           bool is_member) const;
  /// Takes in the node and spends the token. The writes must be durable before the node is admitted.
  /// Precondition: refusal() has returned null.
  Batch join(const std::string& token, const NodeDescription& node);
  /// Drops the node's record: it has registered, or its time is over. No writes: it has none.
  Batch forget(NodeId node);

  /// Begins the node's time anew. O(nodes that have one).
  void expire_later(NodeId node, Time now);
  /// Returns the next node whose time is over, and ends that time.
  std::optional<NodeId> pop_expired(Time now);
  Time next_expiry() const { return expire_at_.empty() ? Time::max() : expire_at_.begin()->first; }

  /// The nodes that have joined and not registered. Of a recovered one only id and key are known.
  const std::map<NodeId, NodeDescription>& joined() const noexcept { return joined_; }
  /// Returns whether a node has joined with this token, at this or an earlier control.
  bool is_spent(const std::string& token) const { return spent_.count(token) != 0; }

 private:
  explicit Admissions(const AdmissionsOptions& options) : options_(options) {}
  bool is_again(const NodeDescription& node) const;

  AdmissionsOptions options_;
  std::map<NodeId, NodeDescription> joined_;
  std::set<std::string> spent_;
  std::multimap<Time, NodeId> expire_at_;  ///< each node at most once
};

}  // namespace troupe::control

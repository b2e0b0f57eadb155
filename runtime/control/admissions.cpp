#include "troupe/runtime/control/admissions.hpp"

#include "troupe/runtime/control/codec.hpp"

#include <utility>

namespace troupe::control {
namespace {

constexpr std::uint8_t kTokenFormat = 1;
constexpr std::string_view kJoinedPrefix = "joined/";
constexpr std::string_view kSpentPrefix = "spent/";

std::string joined_key(NodeId node) {
  return std::string(kJoinedPrefix) + node.str();
}

}  // namespace

Result<Admissions> Admissions::recover(Store& store, const AdmissionsOptions& options, Time now) {
  Admissions all(options);
  bool readable = true;
  auto read = store.scan(kJoinedPrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    NodeDescription node;
    node.id = in.id<NodeId>();
    node.public_key = in.bytes();
    readable = readable && in.ok() && in.version() == kTokenFormat;
    all.joined_.emplace(node.id, std::move(node));
  });
  if (!read) return read.error();
  read = store.scan(kSpentPrefix, [&](std::string_view key, std::string_view) {
    all.spent_.emplace(key.substr(kSpentPrefix.size()));
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a record of a joined node cannot be read: it was written by a newer build");
  for (const auto& [id, node] : all.joined_) all.expire_at_.emplace(now + options.revoke_after, id);
  return all;
}

/// Returns whether the node has joined already, with this key.
bool Admissions::is_again(const NodeDescription& node) const {
  const auto known = joined_.find(node.id);
  return known != joined_.end() && known->second.public_key == node.public_key;
}

std::shared_ptr<const ErrorInfo> Admissions::refusal(const std::string& token,
                                                     const NodeDescription& node,
                                                     bool is_member) const {
  const bool again = is_again(node);
  if (!node.id || is_member || (!again && joined_.count(node.id) != 0))
    return Error(Code::invalid_argument, "the node's id is taken").shared_info();
  if (is_spent(token) && !again)
    return Error(Code::invalid_argument, "the token is spent").shared_info();
  if (!again && joined_.size() >= options_.max_joined)
    return Error(Code::overloaded, "too many nodes have joined and not registered").shared_info();
  return nullptr;
}

Batch Admissions::join(const std::string& token, const NodeDescription& node) {
  joined_[node.id] = node;
  spent_.insert(token);
  Batch writes;
  writes.put(joined_key(node.id),
             RecordWriter(kTokenFormat).id(node.id).bytes(node.public_key).take());
  writes.put(std::string(kSpentPrefix) + token, RecordWriter(kTokenFormat).id(node.id).take());
  return writes;
}

Batch Admissions::forget(NodeId node) {
  Batch writes;
  if (joined_.erase(node) != 0) writes.del(joined_key(node));
  return writes;
}

void Admissions::expire_later(NodeId node, Time now) {
  std::erase_if(expire_at_, [&](const auto& one) { return one.second == node; });
  expire_at_.emplace(now + options_.revoke_after, node);
}

std::optional<NodeId> Admissions::pop_expired(Time now) {
  if (expire_at_.empty() || expire_at_.begin()->first > now) return std::nullopt;
  const NodeId node = expire_at_.begin()->second;
  expire_at_.erase(expire_at_.begin());
  return node;
}

}  // namespace troupe::control

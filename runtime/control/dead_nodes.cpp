#include "troupe/runtime/control/dead_nodes.hpp"

#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/internal/amounts.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

namespace troupe::control {
namespace {

constexpr std::uint8_t kDeadFormat = 1;
constexpr const char* kDeadPrefix = "dead/";

std::string key_of(Epoch epoch) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%016llx", kDeadPrefix,
                static_cast<unsigned long long>(epoch));
  return text;
}

std::string record_of(const DeadNode& dead) {
  const NodeDescription& node = dead.description;
  RecordWriter out(kDeadFormat);
  out.id(node.id).u64(dead.epoch).i64(dead.died_unix_ns).boolean(dead.left).bytes(dead.why);
  out.bytes(node.name).bytes(node.address).boolean(node.beside_control);
  internal::write_amounts(node.resources, node.labels, out);
  return out.take();
}

bool read_record(std::string_view bytes, DeadNode& dead) {
  RecordReader in(bytes);
  NodeDescription& node = dead.description;
  node.id = in.id<NodeId>();
  dead.epoch = in.u64();
  dead.died_unix_ns = in.i64();
  dead.left = in.boolean();
  dead.why = in.bytes();
  node.name = in.bytes();
  node.address = in.bytes();
  node.beside_control = in.boolean();
  internal::read_amounts(in, node.resources, node.labels);
  return in.ok() && in.version() == kDeadFormat;
}

}  // namespace

Result<DeadNodes> DeadNodes::recover(Store& store) {
  DeadNodes all;
  bool readable = true;
  const auto read = store.scan(kDeadPrefix, [&](std::string_view, std::string_view value) {
    DeadNode dead;
    readable = read_record(value, dead) && readable;
    all.nodes_[dead.epoch] = std::move(dead);
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a record of a dead node cannot be read: it was written by a newer build");
  return all;
}

void DeadNodes::add(DeadNode node, Batch& writes) {
  node.description.public_key.clear();
  if (node.why.size() > kMaxWhy) node.why.resize(kMaxWhy);
  const std::int64_t now = node.died_unix_ns;
  const Epoch epoch = node.epoch;
  writes.put(key_of(epoch), record_of(node));
  nodes_[epoch] = std::move(node);
  const auto drop = [&](auto at) {
    writes.del(key_of(at->first));
    return nodes_.erase(at);
  };
  for (auto at = nodes_.begin(); at != nodes_.end();)
    at = at->first != epoch && now - at->second.died_unix_ns >= kKeptNs ? drop(at) : std::next(at);
  while (nodes_.size() > kMost) {
    // The clock may have been set back: the node that is added stays.
    const auto first_to_die =
        std::min_element(nodes_.begin(), nodes_.end(), [&](const auto& one, const auto& other) {
          return std::pair(one.first == epoch, one.second.died_unix_ns) <
                 std::pair(other.first == epoch, other.second.died_unix_ns);
        });
    drop(first_to_die);
  }
}

std::vector<DeadNode> DeadNodes::list(std::int64_t now_unix_ns) const {
  std::vector<DeadNode> all;
  for (auto at = nodes_.rbegin(); at != nodes_.rend(); ++at)
    if (now_unix_ns - at->second.died_unix_ns < kKeptNs) all.push_back(at->second);
  std::stable_sort(all.begin(), all.end(), [](const DeadNode& one, const DeadNode& other) {
    return one.died_unix_ns > other.died_unix_ns;
  });
  return all;
}

}  // namespace troupe::control

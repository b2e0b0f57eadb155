#include "troupe/runtime/agent/transfer_plan.hpp"

#include <algorithm>

namespace troupe::agent {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;  // of one object in the store

Error node_gone(ObjectId object) {
  return Error(Code::object_lost,
               "object " + object.str() + " was on a node that died before it could be fetched",
               Outcome::unknown);
}
Error too_large(ObjectId object, std::uint64_t bytes) {
  return Error(Code::out_of_memory, "object " + object.str() + " is said to have " +
                                        std::to_string(bytes) + " bytes, more than a node can");
}
Error silent(ObjectId object) {
  return Error(Code::unavailable,
               "the node of object " + object.str() + " does not answer requests for it");
}

}  // namespace

// -- asked from above

void TransferPlan::pull(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority,
                        Time now) {
  if (const auto known = by_object_.find(object); known != by_object_.end())
    return join(known->second, from, bytes, priority);
  add(from, object, bytes, priority);
  schedule(now);
}

/// Adds one more pull() to an object that is being fetched.
void TransferPlan::join(PullId number, NodeId from, std::uint64_t bytes, Priority priority) {
  Pull& pull = pulls_.at(number);
  pull.wanted = true;
  pull.lost = 0;  // earlier attempts do not count against this call
  if (pull.gone || pull.broken || pull.bytes != bytes)
    pull.again = Again{from, bytes, priority};
  else
    raise(number, priority);
}

void TransferPlan::raise(PullId number, Priority priority) {
  Pull& pull = pulls_.at(number);
  if (priority >= pull.priority) return;
  std::map<Place, PullId>* queue = nullptr;
  if (pull.state == State::waiting) queue = &lane(pull).waiting;
  if (pull.state == State::ready) queue = &nodes_.at(pull.source).ready;
  if (queue != nullptr) queue->erase(pull.place());
  pull.priority = priority;
  if (queue != nullptr) queue->emplace(pull.place(), number);
}

void TransferPlan::add(NodeId from, ObjectId object, std::uint64_t bytes, Priority priority) {
  if (dead_.count(from) != 0) {
    actions_.emplace_back(Failed{from, object, node_gone(object)});
    return;
  }
  if (bytes > kMostBytes) {
    actions_.emplace_back(Failed{from, object, too_large(object, bytes)});
    return;
  }
  const PullId number = next_pull_++;
  Pull& pull = pulls_[number];
  pull.node = pull.source = from;
  pull.object = object;
  pull.bytes = bytes;
  pull.priority = priority;
  pull.order = next_order_++;
  by_object_[object] = number;
  lane(pull).waiting.emplace(pull.place(), number);
}

void TransferPlan::cancel(ObjectId object, Time now) {
  const auto known = by_object_.find(object);
  if (known == by_object_.end()) return;
  const PullId number = known->second;
  Pull& pull = pulls_.at(number);
  pull.wanted = false;
  pull.again.reset();
  if (pull.state == State::waiting || pull.state == State::ready) {
    const NodeId id = pull.node, source = pull.source;
    fail(number, silent(object));
    tidy(id);
    tidy(source);
    schedule(now);
  }
}

void TransferPlan::node_died(NodeId id, bool for_ever, Time now) {
  if (for_ever) dead_.insert(id);
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  Node& node = found->second;
  for (auto& [number, pull] : pulls_) pull.gone = pull.gone || pull.node == id;
  std::vector<PullId> over;  // without those on a connection, which must end first
  for (const Lane* lane : {&node.link, &node.bulk})
    for (const auto& [place, number] : lane->waiting) over.push_back(number);
  for (const auto& [place, number] : node.ready) over.push_back(number);
  for (const TransferId transfer : node.asked) over.push_back(by_transfer_.at(transfer));
  // Pulls of the dead node's objects that wait to be asked for at a named node end as well.
  for (const auto& [number, pull] : pulls_)
    if (pull.node == id && pull.source != id && pull.state == State::ready) over.push_back(number);
  for (const PullId number : over) {
    const Pull& pull = pulls_.at(number);
    const NodeId owner = pull.node, source = pull.source;
    if (owner == id)
      fail(number, node_gone(pull.object));
    else
      back_to_owner(number);  // the dead node was only named by the owner
    if (owner != id) ask_ready(owner, now);
    if (source != id) tidy(source);
  }
  close(id, "its node died");
  tidy(id);
  schedule(now);
}

// -- what runs

TransferPlan::Lane& TransferPlan::lane(const Pull& pull) {
  Node& node = nodes_[pull.node];
  return pull.small() ? node.link : node.bulk;
}

void TransferPlan::schedule(Time now) {
  for (auto& [id, node] : nodes_) {
    for (Lane* lane : {&node.link, &node.bulk})
      if (lane->retry_at <= now) lane->retry_at = Time{};
    while (start_small(node, now)) {
    }
  }
  while (start_large(now)) {
  }
}

bool TransferPlan::start_small(Node& node, Time now) {
  const Lane& lane = node.link;
  if (lane.waiting.empty() || lane.retry_at > now) return false;
  const PullId number = lane.waiting.begin()->second;
  const bool fits =
      lane.running == 0 || (lane.running < options_.link_objects &&
                            lane.bytes + pulls_.at(number).bytes <= options_.link_bytes);
  if (fits) start(number);
  return fits;
}

/// Starts the first pull, in order, whose node has room. If the sum over all nodes has no room for
/// it, no other pull overtakes it, so that a large object gets its turn.
bool TransferPlan::start_large(Time now) {
  const std::pair<const Place, PullId>* best = nullptr;
  for (const auto& [id, node] : nodes_) {
    const Lane& lane = node.bulk;
    if (lane.waiting.empty() || lane.retry_at > now) continue;
    const auto& head = *lane.waiting.begin();
    const std::uint64_t bytes = pulls_.at(head.second).bytes;
    const bool fits = lane.bytes == 0 || lane.bytes + bytes <= options_.node_bytes;
    if (fits && (best == nullptr || head.first < best->first)) best = &head;
  }
  if (best == nullptr) return false;
  const PullId number = best->second;
  if (reserved_ != 0 && reserved_ + pulls_.at(number).bytes > options_.all_bytes) return false;
  start(number);
  return true;
}

void TransferPlan::start(PullId number) {
  Pull& pull = pulls_.at(number);
  Lane& its = lane(pull);
  its.waiting.erase(pull.place());
  pull.state = State::reserving;
  ++its.running;
  its.bytes += pull.bytes;
  if (!pull.small()) reserved_ += pull.bytes;
  actions_.emplace_back(Reserve{number, pull.bytes});
}

void TransferPlan::leave_lane(const Pull& pull) {
  Lane& its = lane(pull);
  if (pull.state == State::waiting) {
    its.waiting.erase(pull.place());
    return;
  }
  --its.running;
  its.bytes -= pull.bytes;
  if (!pull.small()) reserved_ -= pull.bytes;
}

void TransferPlan::reserved(PullId number, Time now) {
  const auto found = pulls_.find(number);
  if (found == pulls_.end()) {
    actions_.emplace_back(Discard{number});
    return;
  }
  Pull& pull = found->second;
  pull.has_memory = true;
  pull.give_up = Time::max();
  lane(pull).retry_at = Time{};
  const NodeId id = pull.node;
  if (pull.gone || !pull.wanted) {
    fail(number, node_gone(pull.object));
    tidy(id);
  } else if (pull.small()) {
    ask(number, 0, now);
  } else {
    make_ready(number, id);
    ask_ready(id, now);
  }
  schedule(now);
}

void TransferPlan::make_ready(PullId number, NodeId source) {
  Pull& pull = pulls_.at(number);
  pull.source = source;
  pull.state = State::ready;
  nodes_[source].ready.emplace(pull.place(), number);
}

/// Asks the owner again, since the node that it named does not deliver.
void TransferPlan::back_to_owner(PullId number) {
  Pull& pull = pulls_.at(number);
  const auto named = nodes_.find(pull.source);
  if (named != nodes_.end()) named->second.ready.erase(pull.place());
  pull.without = pull.source;
  ++pull.detours;
  make_ready(number, pull.node);
}

void TransferPlan::no_memory(PullId number, const Error& error, Time now) {
  const auto found = pulls_.find(number);
  if (found == pulls_.end()) return;
  Pull& pull = found->second;
  const NodeId id = pull.node;
  if (pull.give_up == Time::max()) pull.give_up = now + options_.patience;
  if (now >= pull.give_up || error.code() != Code::out_of_memory || !pull.wanted || pull.gone) {
    fail(number, pull.gone ? node_gone(pull.object) : error);
    tidy(id);
  } else {
    leave_lane(pull);
    pull.state = State::waiting;
    pull.order = next_order_++;  // behind the others, which may need less memory
    lane(pull).waiting.emplace(pull.place(), number);
    lane(pull).retry_at = now + options_.pause;
  }
  schedule(now);
}

void TransferPlan::memory_came(Time now) {
  for (auto& [id, node] : nodes_)
    for (Lane* lane : {&node.link, &node.bulk}) lane->retry_at = Time{};
  schedule(now);
}

void TransferPlan::ask(PullId number, ConnectionId connection, Time now) {
  Pull& pull = pulls_.at(number);
  Node& node = nodes_.at(pull.source);
  pull.state = State::asked;
  pull.asked = now;
  pull.had_then = pull.have;
  pull.transfer = next_transfer_++;
  by_transfer_[pull.transfer] = number;
  if (connection == 0) {
    node.asked.insert(pull.transfer);
  } else {
    if (node.connection.pulls.empty()) node.connection.heard = now;
    node.connection.pulls.insert(number);
    pull.finished_then = node.connection.finished;
  }
  const bool owner = pull.source == pull.node;
  actions_.emplace_back(Ask{pull.source, connection, pull.transfer, number, pull.object, pull.have,
                            pull.stamp, owner ? pull.without : NodeId{},
                            owner && pull.detours >= options_.detours});
}

void TransferPlan::ask_ready(NodeId id, Time now) {
  Node& node = nodes_.at(id);
  if (node.ready.empty() || node.connection.closing) return;
  if (node.connection.number == 0) {
    node.connection = {};
    node.connection.number = next_connection_++;
    actions_.emplace_back(Offer{id, node.connection.number});
  }
  for (const auto& [place, number] : std::exchange(node.ready, {}))
    ask(number, node.connection.number, now);
}

// -- ends

/// Ends the pull's transfer: messages that still come for it are late.
void TransferPlan::take_off(PullId number, Time now) {
  Pull& pull = pulls_.at(number);
  if (pull.transfer == 0) return;
  Node& node = nodes_.at(pull.source);
  by_transfer_.erase(pull.transfer);
  node.asked.erase(pull.transfer);
  if (node.connection.pulls.erase(number) != 0 && node.connection.pulls.empty())
    node.connection.idle_since = now;
  pull.transfer = 0;
}

void TransferPlan::erase(PullId number) {
  const Pull& pull = pulls_.at(number);
  leave_lane(pull);
  by_object_.erase(pull.object);
  pulls_.erase(number);
}

void TransferPlan::complete(PullId number) {
  const Pull& pull = pulls_.at(number);
  const ObjectId object = pull.object;
  const std::optional<Again> again = pull.again;
  const bool other = again && again->bytes != pull.bytes;  // wants another life of the object
  actions_.emplace_back(Complete{number, pull.node, object, pull.wanted && !other});
  erase(number);
  if (other) add(again->from, object, again->bytes, again->priority);
}

void TransferPlan::fail(PullId number, const Error& error) {
  const Pull& pull = pulls_.at(number);
  const ObjectId object = pull.object;
  const std::optional<Again> again = pull.again;
  if (const auto at = nodes_.find(pull.source); at != nodes_.end()) {
    at->second.ready.erase(pull.place());
    at->second.asked.erase(pull.transfer);
  }
  by_transfer_.erase(pull.transfer);
  if (pull.has_memory) actions_.emplace_back(Discard{number});
  if (pull.wanted && !again) actions_.emplace_back(Failed{pull.node, object, error});
  erase(number);
  if (again) add(again->from, object, again->bytes, again->priority);
}

/// Handles a failed attempt: asks again, or fails the pull. Precondition: no thread writes into
/// its memory.
void TransferPlan::lose(PullId number, const Error& why, Time now) {
  Pull& pull = pulls_.at(number);
  const bool detour = pull.source != pull.node;
  if (pull.gone || !pull.wanted || pull.broken || (!detour && pull.lost >= options_.attempts)) {
    fail(number, pull.gone ? node_gone(pull.object) : pull.broken.value_or(why));
  } else if (pull.small()) {
    ask(number, 0, now);
  } else if (detour) {
    back_to_owner(number);
  } else {
    make_ready(number, pull.node);
  }
}

/// Handles a message that contradicts the protocol: the owner gets no second attempt.
void TransferPlan::broken(PullId number, const std::string& why, Time now) {
  Pull& pull = pulls_.at(number);
  const NodeId id = pull.source;
  const std::string text =
      "the node of object " + pull.object.str() + " broke the protocol: " + why;
  if (pull.small()) {
    take_off(number, now);
    fail(number, Error(Code::internal, text));
  } else {
    if (id == pull.node) pull.broken = Error(Code::internal, text);
    close(id, text);
  }
}

void TransferPlan::tidy(NodeId id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  const Node& node = found->second;
  if (node.link.running == 0 && node.link.waiting.empty() && node.bulk.running == 0 &&
      node.bulk.waiting.empty() && node.ready.empty() && node.connection.number == 0)
    nodes_.erase(found);
}

// -- messages

TransferPlan::Pull* TransferPlan::under_way(NodeId from, TransferId transfer) {
  const auto found = by_transfer_.find(transfer);
  if (found == by_transfer_.end()) return nullptr;
  Pull& pull = pulls_.at(found->second);
  return pull.source == from ? &pull : nullptr;
}

PullId TransferPlan::expects(NodeId from, TransferId transfer, std::uint64_t bytes) const {
  const auto found = by_transfer_.find(transfer);
  if (found == by_transfer_.end()) return 0;
  const Pull& pull = pulls_.at(found->second);
  return pull.source == from && pull.small() && pull.bytes == bytes ? found->second : 0;
}

PullId TransferPlan::large(NodeId from, TransferId transfer) const {
  const auto found = by_transfer_.find(transfer);
  if (found == by_transfer_.end()) return 0;
  const Pull& pull = pulls_.at(found->second);
  return pull.source == from && !pull.small() ? found->second : 0;
}

bool TransferPlan::takes_off(NodeId from, TransferId transfer, const Error& error) const {
  return large(from, transfer) != 0 && error.code() != Code::unavailable;
}

void TransferPlan::arrived(NodeId from, TransferId transfer, bool fits, Time now) {
  const Pull* pull = under_way(from, transfer);
  if (pull == nullptr) return;
  nodes_.at(from).heard = now;
  const PullId number = by_transfer_.at(transfer);
  if (!fits || !pull->small()) {
    broken(number, "it sends another number of bytes than was said", now);
  } else {
    take_off(number, now);
    complete(number);
  }
  tidy(from);
  schedule(now);
}

void TransferPlan::on_bulk(NodeId from, TransferId transfer, std::uint64_t bytes, Time now) {
  const Pull* pull = under_way(from, transfer);
  if (pull == nullptr) return;
  if (pull->small() || pull->bytes != bytes) {
    broken(by_transfer_.at(transfer), "it sends another number of bytes than was said", now);
    tidy(from);
    schedule(now);
  }
}

void TransferPlan::refused(NodeId from, TransferId transfer, const Error& error, Time now,
                           bool busy) {
  Pull* pull = under_way(from, transfer);
  if (pull == nullptr) return;
  const PullId number = by_transfer_.at(transfer);
  const bool detour = pull->source != pull->node;
  if (busy && !detour) pull->broken = error;  // fails when the connection has ended
  if (busy || (!pull->small() && error.code() == Code::unavailable))
    return close(from, error.message());
  nodes_.at(from).heard = now;
  take_off(number, now);
  if (detour) {
    const NodeId owner = pull->node;
    lose(number, error, now);
    if (nodes_.count(owner) != 0) ask_ready(owner, now);
    tidy(owner);
  } else {
    // The bytes that are here are of an earlier life. The owner has another one: fetch it whole.
    if (error.code() == Code::object_lost && pull->have != 0 && pull->wanted && !pull->gone)
      pull->again = Again{pull->node, pull->bytes, pull->priority};
    fail(number, error);
  }
  tidy(from);
  schedule(now);
}

void TransferPlan::elsewhere(NodeId from, TransferId transfer, NodeId node, Time now, bool busy) {
  const Pull* pull = under_way(from, transfer);
  if (pull == nullptr) return;
  const PullId number = by_transfer_.at(transfer);
  if (busy || pull->small() || pull->source != pull->node || node == from || !node ||
      pull->detours >= options_.detours) {
    broken(number, "it names another node where it must not", now);
    tidy(from);
    return schedule(now);
  }
  take_off(number, now);
  make_ready(number, node);
  if (dead_.count(node) != 0) back_to_owner(number);
  const NodeId source = pull->source;
  ask_ready(source, now);
  tidy(from);
  tidy(node);
  schedule(now);
}

// -- connections

void TransferPlan::close(NodeId id, const std::string& why) {
  Connection& connection = nodes_.at(id).connection;
  if (connection.number == 0 || connection.closing) return;
  connection.closing = true;
  connection.why = why;
  actions_.emplace_back(Close{id, connection.number, why});
}

void TransferPlan::heard(NodeId id, ConnectionId number, Time at) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.connection.number != number) return;
  Connection& connection = found->second.connection;
  connection.heard = std::max(connection.heard, at);
}

void TransferPlan::received(NodeId id, ConnectionId connection, PullId number, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.connection.number != connection) return;
  Connection& its = found->second.connection;
  if (its.pulls.count(number) == 0) return;
  ++its.finished;
  its.heard = std::max(its.heard, now);
  take_off(number, now);
  complete(number);
  schedule(now);
}

void TransferPlan::kept(PullId number, std::uint64_t bytes, std::uint64_t stamp) {
  const auto found = pulls_.find(number);
  if (found == pulls_.end()) return;
  found->second.have = bytes;
  found->second.stamp = bytes == 0 ? 0 : stamp;
}

void TransferPlan::connection_ended(NodeId id, ConnectionId number, const Error& why, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.connection.number != number) return;
  const Connection ended = std::exchange(found->second.connection, {});
  const Error reason = ended.closing ? Error(Code::unavailable, ended.why, Outcome::unknown) : why;
  std::set<NodeId> owners;
  for (const PullId each : ended.pulls) {
    Pull& pull = pulls_.at(each);
    owners.insert(pull.node);
    by_transfer_.erase(std::exchange(pull.transfer, TransferId{}));
    // The connection sends one object after another, so any object that arrived is progress for
    // those that wait behind it.
    const bool moved = ended.finished != pull.finished_then || pull.have > pull.had_then;
    if (!moved && pull.source == pull.node) ++pull.lost;
    lose(each, reason, now);
  }
  owners.insert(id);
  for (const NodeId owner : owners) {
    if (nodes_.count(owner) != 0) ask_ready(owner, now);
    tidy(owner);
  }
  schedule(now);
}

// -- time

void TransferPlan::on_tick(Time now) {
  std::vector<NodeId> due;
  for (const auto& [id, node] : nodes_)
    if (deadline_of(node) <= now) due.push_back(id);
  for (const NodeId id : due) tick_node(id, now);
  schedule(now);
}

void TransferPlan::tick_node(NodeId id, Time now) {
  Node& node = nodes_.at(id);
  const std::set<TransferId> asked = node.asked;
  for (const TransferId transfer : asked) {
    const PullId number = by_transfer_.at(transfer);
    Pull& pull = pulls_.at(number);
    // Oldest first: if this one is not due, the later ones are not due either.
    if (std::max(pull.asked, node.heard) + options_.silence > now) break;
    take_off(number, now);
    ++pull.lost;
    lose(number, silent(pull.object), now);
  }
  Connection& connection = node.connection;
  if (connection.number != 0 && !connection.closing) {
    if (connection.pulls.empty()) {
      if (connection.idle_since + options_.idle <= now) close(id, "it is not used");
    } else if (connection.heard + options_.silence <= now) {
      close(id, "no byte came for too long");
    }
  }
  tidy(id);
}

Time TransferPlan::deadline_of(const Node& node) const {
  Time due = Time::max();
  for (const Lane* lane : {&node.link, &node.bulk})
    if (!lane->waiting.empty() && lane->retry_at != Time{}) due = std::min(due, lane->retry_at);
  if (!node.asked.empty()) {
    const Pull& oldest = pulls_.at(by_transfer_.at(*node.asked.begin()));
    due = std::min(due, std::max(oldest.asked, node.heard) + options_.silence);
  }
  const Connection& connection = node.connection;
  if (connection.number != 0 && !connection.closing)
    due = std::min(due, connection.pulls.empty() ? connection.idle_since + options_.idle
                                                 : connection.heard + options_.silence);
  return due;
}

Time TransferPlan::next_deadline() const {
  Time due = Time::max();
  for (const auto& [id, node] : nodes_) due = std::min(due, deadline_of(node));
  return due;
}

// -- observe

std::string TransferPlan::check() const {
  std::uint64_t reserved = 0;
  for (const auto& [id, node] : nodes_) {
    std::uint64_t bytes[2] = {0, 0}, running[2] = {0, 0}, waiting = 0, asked = 0, ready = 0;
    for (const auto& [number, pull] : pulls_) {
      ready += pull.source == id && pull.state == State::ready ? 1u : 0u;
      asked += pull.source == id && pull.state == State::asked ? 1u : 0u;
      if (pull.node != id) continue;
      waiting += pull.state == State::waiting ? 1u : 0u;
      if (pull.state == State::waiting) continue;
      bytes[pull.small() ? 0 : 1] += pull.bytes;
      ++running[pull.small() ? 0 : 1];
    }
    reserved += bytes[1];
    if (node.link.waiting.size() + node.bulk.waiting.size() != waiting) return "waiting";
    if (node.link.bytes != bytes[0] || node.bulk.bytes != bytes[1]) return "bytes of a lane";
    if (node.link.running != running[0] || node.bulk.running != running[1]) return "running";
    if (node.ready.size() != ready) return "ready";
    if (node.asked.size() + node.connection.pulls.size() != asked) return "asked";
    if (running[1] > 1 && bytes[1] > options_.node_bytes) return "FETCH-3: bytes of one node";
    if (running[0] > 1 && bytes[0] > options_.link_bytes) return "FETCH-3: bytes of one link";
  }
  if (reserved != reserved_) return "reserved bytes";
  std::uint64_t large = 0;
  for (const auto& [number, pull] : pulls_) {
    large += !pull.small() && pull.state != State::waiting ? 1u : 0u;
    if (nodes_.count(pull.node) == 0) return "a pull of no node";
    if (pull.have != 0 && (pull.have > pull.bytes || !pull.has_memory)) return "bytes of nothing";
    if (by_object_.count(pull.object) == 0) return "a pull that is not found by its object";
  }
  if (large > 1 && reserved_ > options_.all_bytes) return "FETCH-3: bytes in all";
  if (by_object_.size() != pulls_.size()) return "objects and pulls";
  return {};
}

}  // namespace troupe::agent

#include "troupe/runtime/agent/proxies.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/plain.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

/// Returns whether the value names a place in a node's memory. Such a value may not be in a frame
/// between nodes.
bool is_place(const wire::Value& value) {
  return value.kind == wire::Value::Kind::shared || value.kind == wire::Value::Kind::remote;
}
bool names_place(const wire::CallMessage& message) {
  if (const auto* call = std::get_if<wire::Call>(&message))
    return std::any_of(call->arguments.begin(), call->arguments.end(), is_place);
  const auto* reply = std::get_if<wire::Reply>(&message);
  return reply != nullptr && is_place(reply->value);
}

/// Returns the sequence number of a plain call, 0 for a plain reply, nullopt for other frames. A
/// plain frame names no object and no place, so that it can be carried without being decoded. Most
/// frames are plain.
std::optional<std::uint64_t> call_of_plain(BlobView frame) {
  BlobView payload;
  if (wire::PlainCall call; wire::read_plain(frame, call, payload)) return call.sequence;
  if (wire::PlainReply reply; wire::read_plain(frame, reply, payload)) return 0;
  return std::nullopt;
}

/// Returns whether the frame may be written into a ring: its refs are those that the message lists,
/// in the same order, and it names no place in memory.
bool is_as_named(const wire::PeerFrame& frame, BlobView payload) {
  if (payload.size() > ring::kMaxFrame) return false;
  if (frame.refs.empty() && call_of_plain(payload)) return true;
  auto decoded = wire::decode_call(payload);
  if (!decoded || names_place(decoded->message)) return false;
  bool good = true;
  std::size_t count = 0;
  wire::for_each_ref(decoded->message, [&](ObjectId id) {
    good = good && count < frame.refs.size() && frame.refs[count].object == id;
    ++count;
  });
  return good && count == frame.refs.size();
}

}  // namespace

// --- proxies

void Proxies::open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId node) {
  if (!is_alive(process)) return;
  const Key key{process, proxy_process};
  if (const auto before = proxies_.find(key); before != proxies_.end())
    finish(before, true);  // an ending one that its process has not read; it never will
  const ProcessIndex holder = below_.owners.index_of(node);
  auto ends = below_.rings.open_channel(process, proxy_process, holder);
  if (!ends) return;
  Proxy& proxy = proxies_[key];
  proxy.process = process;
  proxy.proxy_process = proxy_process;
  proxy.node = node;
  proxy.holder = holder;
  proxy.ends = *std::move(ends);
}

/// Frames that arrived for the process enter its ring first. Frames that it wrote and that were not
/// carried are dropped.
void Proxies::close_proxy(ProcessIndex process, ProcessIndex proxy_process, const Death& death,
                          std::uint64_t started) {
  const auto at = proxies_.find({process, proxy_process});
  if (at == proxies_.end()) return;
  drop_unread(at->second);
  at->second.ending = Proxy::Ending{death, started};
  finish(at);
}

/// Closes an ending proxy: tells its process PeerDied once all that arrived is in the ring, so that
/// the process reads the last frames first. `at_once` does not wait for room in the ring.
void Proxies::finish(Table::iterator at, bool at_once) {
  Proxy& proxy = at->second;
  TROUPE_ASSERT(proxy.ending, "RemoteTable opens a proxy again only after it has closed it");
  if (is_alive(proxy.process)) {
    if (!proxy.ends.channel.flush() && !at_once) return;  // its slot rings when there is room
    const Death& death = proxy.ending->death;
    below_.out.send(proxy.process,
                    wire::PeerDied{proxy.proxy_process, death.reason, proxy.ending->started,
                                   death.stack, death.last_lines},
                    {});
  }
  below_.rings.close_channel(proxy.process, proxy.ends.slot, proxy.ends.its_slot);
  stalled_.erase(at->first);
  if (auto closed = proxies_.extract(at); is_alive(closed.key().first))
    closed_.insert(std::move(closed));
}

void Proxies::drop_written_since(Key key) {
  const auto closed = closed_.extract(key);
  if (closed) drop_unread(closed.mapped());
}

/// Drops the frames in the channel and takes back the counts that the process took for the other
/// node, one for each ref inside. Precondition: the process's Hold messages for these frames have
/// been read. A process that goes on writing meanwhile does not hold this up: after a whole ring the
/// rest waits for drop_written_since().
void Proxies::drop_unread(Proxy& proxy) {
  std::size_t size = 0;
  for (std::size_t sum = 0; sum < ring::kRingBytes; sum += size + 1) {
    if (proxy.ends.channel.receive(frame_.data(), size) != ring::Pop::frame) return;
    auto decoded = wire::decode_call(BlobView(frame_.data(), size));
    if (!decoded) return;
    wire::for_each_ref(decoded->message, [&](ObjectId id) {
      below_.references.hold(id, proxy.holder, -1, proxy.process);
    });
  }
}

std::uint64_t Proxies::started(ProcessIndex process, ProcessIndex proxy_process) {
  const auto at = proxies_.find({process, proxy_process});
  return at == proxies_.end() ? 0 : at->second.ends.channel.peer_progress().started;
}

void Proxies::note_entered(Proxy& proxy) {
  proxy.ends.channel.flush();
  below_.remote.entered(proxy.process, proxy.proxy_process,
                        proxy.pushed - proxy.ends.channel.waiting());
}

// --- frames that leave

/// Carries the frames that the process wrote into the proxy channel to the other node. Stops, and
/// notes the proxy in stalled_, when the other side or the network has no room, or when answers may
/// not leave. `to_the_end` ignores lack of room: the process has died and its frames go now. One that
/// was broken off may write on, so no more than a whole ring is read.
void Proxies::drain(Proxy& proxy, bool to_the_end) {
  const Key key{proxy.process, proxy.proxy_process};
  if (proxy.ending) return finish(proxies_.find(key));
  // The process counted the refs of its frames over its own ring, before it wrote the frames. Those
  // Hold messages have to be read first.
  below_.rings.read_ring(proxy.process);
  note_entered(proxy);
  std::size_t size = 0;
  // An actor's answers stay here while this node may have been declared dead: another life of the
  // actor may have begun elsewhere.
  const bool held = below_.actors.hosts(proxy.process) && !below_.nodes.may_serve();
  if (held) holds_answers_ = true;
  for (std::size_t sum = 0; !to_the_end || sum < ring::kRingBytes; sum += size + 1) {
    if (held || (!to_the_end && (!below_.remote.may_carry(proxy.process, proxy.proxy_process) ||
                                 !below_.out.can_send(proxy.node)))) {
      stalled_.insert(key);
      return;
    }
    const ring::Pop pop = proxy.ends.channel.receive(frame_.data(), size);
    if (pop == ring::Pop::empty) break;
    if (pop == ring::Pop::frame) {
      if (const auto call = call_of_plain(BlobView(frame_.data(), size))) {
        carry(proxy, *call, {}, BlobView(frame_.data(), size));
        continue;
      }
    }
    auto decoded = wire::decode_call(BlobView(frame_.data(), size));
    if (pop == ring::Pop::corrupt || !decoded || names_place(decoded->message)) {
      below_.rings.break_off(proxy.process, "it sent damaged frames to another node");
      break;
    }
    carry(proxy, decoded->message, BlobView(frame_.data(), size));
  }
  stalled_.erase(key);
}

/// Sends a frame to the proxy's node, with the owner of each ref inside.
void Proxies::carry(Proxy& proxy, const wire::CallMessage& message, BlobView frame) {
  std::vector<wire::OwnedRef> refs;
  wire::for_each_ref(message, [&](ObjectId id) {
    const ProcessIndex owner = below_.references.export_to(id, proxy.holder, proxy.process);
    refs.push_back({id, owner == kSelf ? self_ : below_.owners.name_of(owner, id, self_)});
  });
  const auto* call = std::get_if<wire::Call>(&message);
  carry(proxy, call != nullptr ? call->sequence : 0, std::move(refs), frame);
}

void Proxies::carry(Proxy& proxy, std::uint64_t call, std::vector<wire::OwnedRef> refs,
                    BlobView frame) {
  wire::PeerFrame carried;
  carried.from = proxy.process;
  carried.to = below_.remote.target(proxy.proxy_process).process;
  carried.refs = std::move(refs);
  // The call counts as begun from here on: only the worker's agent learns when it really begins.
  if (call != 0) proxy.ends.channel.count_started(call);
  below_.out.send(proxy.node, carried, frame);
  below_.remote.carried(proxy.process, proxy.proxy_process);
}

void Proxies::resume(NodeId node) {
  for (const Key& key : std::set<Key>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end() && at->second.node == node)
      drain(at->second);
}

void Proxies::release_answers() {
  if (!holds_answers_ || !below_.nodes.may_serve()) return;
  holds_answers_ = false;
  for (const Key& key : std::set<Key>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end()) drain(at->second);
}

// --- frames that arrive

/// Writes a frame of another node into the ring of the local process. First imports its refs and
/// counts the process as their holder, so that no ref is freed before the process has read it. The
/// refs of a frame that is dropped are imported too: that lets the sender release them.
void Proxies::on_frame(NodeId from, const wire::PeerFrame& frame, BlobView payload) {
  if (!is_as_named(frame, payload))
    return below_.nodes.drop(from, "it sent a frame whose refs are not those that it names");
  for (const wire::OwnedRef& ref : frame.refs) below_.owners.take_in(from, ref);
  // Drops the connection rather than the frame, so that the caller learns of it.
  if (below_.actors.hosts(frame.to) && !below_.nodes.may_serve())
    return below_.nodes.drop(from, "this node may have been declared dead and serves no calls");
  const auto proxy_process = below_.remote.arrived(from, frame);
  if (!proxy_process) return;
  const auto found = proxies_.find({frame.to, *proxy_process});
  if (found == proxies_.end()) return;  // open_proxy() had no memory: the process is ending
  for (const wire::OwnedRef& ref : frame.refs) below_.references.hold(ref.object, frame.to, +1);
  Proxy& proxy = found->second;
  ++proxy.pushed;
  if (!proxy.ends.channel.send(payload))
    below_.rings.break_off(frame.to, "it does not read its ring");
  note_entered(proxy);
}

// --- ends of processes

void Proxies::drain_to_the_end(ProcessIndex process) {
  for (auto at = proxies_.lower_bound({process, kSelf});
       at != proxies_.end() && at->first.first == process;)
    drain((at++)->second, true);
  closed_.erase(closed_.lower_bound({process, kSelf}),
                closed_.lower_bound({ProcessIndex::of(process.value + 1), kSelf}));
}

void Proxies::finish_ending(ProcessIndex process) {
  for (auto at = proxies_.lower_bound({process, kSelf});
       at != proxies_.end() && at->first.first == process;) {
    const auto proxy = at++;
    if (proxy->second.ending) finish(proxy);
  }
}

// --- leases, which RemoteTable reports here too

void Proxies::job_refused(ProcessIndex process, NodeId node, const std::string& why) {
  below_.leases.job_refused(process, node, why, steady_now());
}

void Proxies::spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                           std::uint32_t count, NodeId node) {
  below_.leases.spill_failed(process, key, demand, count, node, steady_now());
}

void Proxies::gave_back(NodeId node, const wire::ResourceDemand& demand) {
  below_.leases.gave_back(node, demand, steady_now());
}

void Proxies::request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
                      std::uint32_t backlog, JobId job, bool no_faster) {
  below_.leases.request(proxy_process, key, demand, backlog, job, no_faster, steady_now());
}

void Proxies::returned(LeaseId lease) {
  below_.table.returned(lease, steady_now());
}

void Proxies::owner_died(ProcessIndex proxy_process) {
  below_.table.owner_died(proxy_process, steady_now());
}

}  // namespace troupe::agent

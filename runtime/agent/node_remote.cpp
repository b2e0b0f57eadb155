/// Node and the processes of other nodes: carries frames between them and local processes through
/// proxy channels, and counts the refs inside. Carries out what RemoteTable decides.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/wire/plain.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <csignal>
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

}  // namespace

// --- proxies

void Node::open_proxy(ProcessIndex index, ProcessIndex proxy_process, NodeId node) {
  Process* process = find(index);
  if (process == nullptr) return;
  auto memory = ring::ChannelMemory::create();
  if (!memory) return break_off(*process, memory.error().message());
  const ProxyKey key{index, proxy_process};
  if (const auto before = proxies_.find(key); before != proxies_.end())
    finish_proxy(before, true);  // an ending one that its process has not read; it never will
  ProxyChannel& proxy = proxies_[key];
  proxy.process = index;
  proxy.proxy_process = proxy_process;
  proxy.node = node;
  proxy.holder = owners_.index_of(node);
  proxy.slot = take_slot();
  slots_[proxy.slot] = {index, proxy_process};
  wire::Channel channel;
  channel.peer = proxy_process;
  channel.side = 1;
  channel.my_slot = proxy.its_slot = process->slots.take();
  channel.peer_slot = proxy.slot;
  channel.remote = true;
  channel.holder = proxy.holder;
  send_with(*process, channel, {memory->fd(), bell_.memory_fd(), bell_.event_fd()});
  proxy.channel = ring::Channel(std::move(*memory), 0, process->bell, channel.my_slot);
  proxy.channel.close_fd();
}

void Node::read(ProcessIndex process) {
  if (Process* living = find(process)) drain_ring(*living);
}

/// Frames that arrived for the process enter its ring first. Frames that it wrote and that were not
/// carried are dropped.
void Node::close_proxy(ProcessIndex process, ProcessIndex proxy_process, const std::string& reason,
                       std::uint64_t started) {
  const auto at = proxies_.find({process, proxy_process});
  if (at == proxies_.end()) return;
  drop_unread(at->second);
  at->second.ending = ProxyChannel::Ending{reason, started};
  finish_proxy(at);
}

/// Closes an ending proxy: tells its process PeerDied once all that arrived is in the ring, so that
/// the process reads the last frames first. `at_once` does not wait for room in the ring.
void Node::finish_proxy(ProxyChannels::iterator at, bool at_once) {
  ProxyChannel& proxy = at->second;
  TROUPE_ASSERT(proxy.ending, "RemoteTable opens a proxy again only after it has closed it");
  if (Process* process = find(proxy.process)) {
    if (!proxy.channel.flush() && !at_once) return;  // its slot rings when there is room
    send(*process,
         wire::PeerDied{proxy.proxy_process, proxy.ending->reason, proxy.ending->started});
    process->slots.give_back(proxy.its_slot);
  }
  slots_[proxy.slot] = {};
  stalled_.erase(at->first);
  if (auto closed = proxies_.extract(at); find(closed.key().first) != nullptr)
    closed_.insert(std::move(closed));
}

/// Drops what the process wrote into a proxy channel after this agent closed it. The process has
/// now read PeerDied (it has sent Arrived), and has stopped writing.
void Node::drop_written_since(ProxyKey key) {
  const auto closed = closed_.extract(key);
  if (closed) drop_unread(closed.mapped());
}

/// Drops the frames in the channel and takes back the counts that the process took for the other
/// node, one for each ref inside. Precondition: the process's Hold messages for these frames have
/// been read.
void Node::drop_unread(ProxyChannel& proxy) {
  std::size_t size = 0;
  while (proxy.channel.receive(frame_.data(), size) == ring::Pop::frame) {
    auto decoded = wire::decode_call(BlobView(frame_.data(), size));
    if (!decoded) return;
    wire::for_each_ref(decoded->message,
                       [&](ObjectId id) { references_.hold(id, proxy.holder, -1, proxy.process); });
  }
}

std::uint64_t Node::started(ProcessIndex process, ProcessIndex proxy_process) {
  const auto at = proxies_.find({process, proxy_process});
  return at == proxies_.end() ? 0 : at->second.channel.peer_progress().started;
}

void Node::note_entered(ProxyChannel& proxy) {
  proxy.channel.flush();
  remote_.entered(proxy.process, proxy.proxy_process, proxy.pushed - proxy.channel.waiting());
}

// --- frames that leave

/// Carries the frames that the process wrote into the proxy channel to the other node. Stops, and
/// notes the proxy in stalled_, when the other side or the network has no room, or when answers may
/// not leave. `to_the_end` ignores lack of room: the process has died and its frames go now.
void Node::drain_proxy(ProxyChannel& proxy, bool to_the_end) {
  const ProxyKey key{proxy.process, proxy.proxy_process};
  if (proxy.ending) return finish_proxy(proxies_.find(key));
  // The process counted the refs of its frames over its own ring, before it wrote the frames. Those
  // Hold messages have to be read first.
  Process* process = find(proxy.process);
  if (process != nullptr) drain_ring(*process);
  note_entered(proxy);
  std::size_t size = 0;
  // An actor's answers stay here while this node may have been declared dead: another life of the
  // actor may have begun elsewhere.
  const bool held = actors_.hosts(proxy.process) && !network_->may_serve(steady_now());
  if (held) holds_answers_ = true;
  for (;;) {
    if (held || (!to_the_end && (!remote_.may_carry(proxy.process, proxy.proxy_process) ||
                                 !network_->can_send(proxy.node)))) {
      stalled_.insert(key);
      return;
    }
    const ring::Pop pop = proxy.channel.receive(frame_.data(), size);
    if (pop == ring::Pop::empty) break;
    if (pop == ring::Pop::frame) {
      if (const auto call = call_of_plain(BlobView(frame_.data(), size))) {
        carry(proxy, *call, {}, BlobView(frame_.data(), size));
        continue;
      }
    }
    auto decoded = wire::decode_call(BlobView(frame_.data(), size));
    if (pop == ring::Pop::corrupt || !decoded || names_place(decoded->message)) {
      if (process != nullptr) break_off(*process, "it sent damaged frames to another node");
      break;
    }
    carry(proxy, decoded->message, BlobView(frame_.data(), size));
  }
  stalled_.erase(key);
}

/// Sends a frame to the proxy's node, with the owner of each ref inside.
void Node::carry(ProxyChannel& proxy, const wire::CallMessage& message, BlobView frame) {
  std::vector<wire::OwnedRef> refs;
  wire::for_each_ref(message, [&](ObjectId id) {
    const ProcessIndex owner = references_.export_to(id, proxy.holder, proxy.process);
    refs.push_back({id, owner == kSelf ? id_ : owners_.name_of(owner, id, id_)});
  });
  const auto* call = std::get_if<wire::Call>(&message);
  carry(proxy, call != nullptr ? call->sequence : 0, std::move(refs), frame);
}

void Node::carry(ProxyChannel& proxy, std::uint64_t call, std::vector<wire::OwnedRef> refs,
                 BlobView frame) {
  wire::PeerFrame carried;
  carried.from = proxy.process;
  carried.to = remote_.target(proxy.proxy_process).process;
  carried.refs = std::move(refs);
  // The call counts as begun from here on: only the worker's agent learns when it really begins.
  if (call != 0) proxy.channel.count_started(call);
  network_->send(proxy.node, carried, frame);
  remote_.carried(proxy.process, proxy.proxy_process);
}

void Node::resume_stalled(NodeId node) {
  for (const ProxyKey& key : std::set<ProxyKey>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end() && at->second.node == node)
      drain_proxy(at->second);
}

/// Sends the answers of actors that drain_proxy() held back, once control has answered again and
/// has not declared this node dead.
void Node::release_answers() {
  if (!holds_answers_ || !network_->may_serve(steady_now())) return;
  holds_answers_ = false;
  for (const ProxyKey& key : std::set<ProxyKey>(stalled_))
    if (const auto at = proxies_.find(key); at != proxies_.end()) drain_proxy(at->second);
}

/// Stops the node's actors (SIGSTOP) while this node may have been declared dead, and lets them go
/// on (SIGCONT) when it may serve again. Other lives of these actors may run elsewhere, so these
/// must not serve callers of this node either. If control does not take the node back in time, they
/// end with it. The word on the doorbell says until when actors may answer: an actor stops itself
/// then if this process does not run (client/actor_lease_timer.hpp).
void Node::halt_actors() {
  const bool halt = !network_->may_serve(steady_now());
  const Duration until = halt ? Duration{} : sleep_.up_at(network_->serves_until());
  bell_.say(wire::actor_lease_word(Time(until)));
  if (!halt && !halts_actors_) return;
  halts_actors_ = halt;
  for (const auto& [index, process] : processes_) {
    if (process->pid <= 0 || process->halted == halt) continue;
    if (halt && !actors_.hosts(index)) continue;
    process->halted = halt;
    os::send_signal(process->pid, halt ? SIGSTOP : SIGCONT);
  }
}

// --- frames that arrive

/// Returns whether the frame may be written into a ring: its refs are those that the message lists,
/// in the same order, and it names no place in memory.
bool Node::is_as_named(const wire::PeerFrame& frame, BlobView payload) {
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

/// Writes a frame of another node into the ring of the local process. First imports its refs and
/// counts the process as their holder, so that no ref is freed before the process has read it. The
/// refs of a frame that is dropped are imported too: that lets the sender release them.
void Node::on_frame(NodeId from, const wire::PeerFrame& frame, BlobView payload) {
  if (!is_as_named(frame, payload))
    return network_->drop(from, "it sent a frame whose refs are not those that it names");
  for (const wire::OwnedRef& ref : frame.refs) owners_.take_in(from, ref);
  // Drops the connection rather than the frame, so that the caller learns of it.
  if (actors_.hosts(frame.to) && !network_->may_serve(steady_now()))
    return network_->drop(from, "this node may have been declared dead and serves no calls");
  const auto proxy_process = remote_.arrived(from, frame);
  if (!proxy_process) return;
  const auto found = proxies_.find({frame.to, *proxy_process});
  if (found == proxies_.end()) return;  // open_proxy() had no memory: the process is ending
  for (const wire::OwnedRef& ref : frame.refs) references_.hold(ref.object, frame.to, +1);
  ProxyChannel& proxy = found->second;
  ++proxy.pushed;
  if (!proxy.channel.send(payload))
    if (Process* process = find(frame.to)) break_off(*process, "it does not read its ring");
  note_entered(proxy);
}

// --- RemoteTable::Out

void Node::send(NodeId to, const wire::PeerMessage& message) {
  network_->send(to, message);
}

bool Node::is_alive(ProcessIndex process) {
  return find(process) != nullptr;
}

bool Node::hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) {
  return find(worker) != nullptr && actors_.hosts(worker, actor, incarnation);
}

}  // namespace troupe::agent

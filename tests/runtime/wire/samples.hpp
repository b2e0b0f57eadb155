/// Lists every member of every message by name, for the tests. Random messages, comparison, and
/// the text of golden files come from that list alone.
///
///     const CallMessage m = random_message<CallMessage>(random, payload_size);
///     EXPECT_EQ(text_of(m), text_of(decoded));
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace troupe::wire::samples {

// --- the members, in the order of messages.hpp ---

template <class F>
void each(F& f, Location& m) {
  f("segment", m.segment), f("slot", m.slot), f("generation", m.generation);
  f("extent", m.extent), f("offset", m.offset), f("length", m.length);
}
template <class F>
void each(F& f, ResourceDemand& m) {
  f("cpus", m.cpus), f("gpus", m.gpus), f("memory_bytes", m.memory_bytes);
  f("resources", m.resources), f("labels", m.labels), f("placement", m.placement);
  f("node", m.node), f("soft", m.soft);
}
template <class F>
void each(F& f, Call& m) {
  f("sequence", m.sequence), f("module", m.function.module), f("offset", m.function.offset);
  f("actor_low", m.actor_low), f("attempt", m.attempt), f("results", m.results);
  f("arguments", m.arguments);
}
template <class F>
void each(F& f, Reply& m) {
  f("sequence", m.sequence), f("index", m.index), f("last", m.last), f("ran_ns", m.ran_ns);
  f("value", m.value), f("lost_argument", m.lost_argument), f("lost", m.lost);
}
template <class F>
void each(F& f, HandBack& m) {
  f("first", m.first), f("count", m.count);
}
template <class F>
void each(F&, Recall&) {}
template <class F>
void each(F& f, Hello& m) {
  f("protocol", m.protocol), f("build", m.build), f("kind", m.kind), f("pid", m.pid);
  f("token", m.token), f("program", m.program), f("arguments", m.arguments);
  f("job_name", m.job_name), f("libraries", m.libraries);
  f("ignored_signals", m.ignored_signals), f("blocked_signals", m.blocked_signals);
}
template <class F>
void each(F& f, Welcome& m) {
  f("protocol", m.protocol), f("node", m.node), f("node_name", m.node_name);
  f("process", m.process), f("my_slot", m.my_slot), f("agent_slot", m.agent_slot);
  f("cpus", m.cpus), f("job", m.job);
}
template <class F>
void each(F& f, Channel& m) {
  f("peer", m.peer), f("side", m.side), f("my_slot", m.my_slot), f("peer_slot", m.peer_slot);
  f("remote", m.remote), f("holder", m.holder);
}
template <class F>
void each(F& f, PeerDied& m) {
  f("peer", m.peer), f("reason", m.reason), f("started", m.started);
  f("stack", m.stack), f("last_lines", m.last_lines);
}
template <class F>
void each(F& f, RequestLease& m) {
  f("key", m.key), f("backlog", m.backlog), f("demand", m.demand);
  f("near", m.near), f("near_bytes", m.near_bytes);
}
template <class F>
void each(F& f, LeaseGranted& m) {
  f("key", m.key), f("lease", m.lease), f("worker", m.worker), f("gpus", m.gpus);
  f("demand", m.demand), f("has_devices", m.has_devices);
}
template <class F>
void each(F& f, LeaseRefused& m) {
  f("key", m.key), f("why", m.why);
}
template <class F>
void each(F& f, LeaseReclaim& m) {
  f("lease", m.lease), f("holder", m.holder);
}
template <class F>
void each(F& f, LeaseReturned& m) {
  f("lease", m.lease);
}
template <class F>
void each(F&, Blocked&) {}
template <class F>
void each(F&, Unblocked&) {}
template <class F>
void each(F& f, Promote& m) {
  f("object", m.object), f("value", m.value);
}
template <class F>
void each(F& f, Fulfil& m) {
  f("object", m.object), f("value", m.value);
}
template <class F>
void each(F& f, Hold& m) {
  f("object", m.object), f("process", m.process), f("delta", m.delta), f("frame", m.frame),
      f("waiting", m.waiting);
}
template <class F>
void each(F& f, Arrived& m) {
  f("peer", m.peer), f("frames", m.frames);
}
template <class F>
void each(F& f, Await& m) {
  f("object", m.object), f("fetch", m.fetch);
}
template <class F>
void each(F& f, Ready& m) {
  f("object", m.object), f("value", m.value), f("node", m.node);
}
template <class F>
void each(F& f, Free& m) {
  f("location", m.location);
}
template <class F>
void each(F& f, CreateActor& m) {
  f("actor", m.actor), f("lifetime", m.lifetime), f("name", m.name);
  f("name_space", m.name_space), f("class_name", m.class_name), f("detached", m.detached);
  f("get_if_exists", m.get_if_exists), f("max_restarts", m.max_restarts);
  f("restart_window_ns", m.restart_window_ns), f("max_concurrency", m.max_concurrency);
  f("demand", m.demand), f("creation", m.creation), f("request", m.request);
}
template <class F>
void each(F& f, StartActor& m) {
  f("actor", m.actor), f("lifetime", m.lifetime), f("incarnation", m.incarnation),
      f("max_concurrency", m.max_concurrency);
  f("restarted", m.restarted), f("name", m.name), f("gpus", m.gpus), f("creation", m.creation);
}
template <class F>
void each(F& f, ActorCreated& m) {
  f("actor", m.actor), f("incarnation", m.incarnation), f("error", m.error);
}
template <class F>
void each(F& f, WatchActor& m) {
  f("actor", m.actor);
}
template <class F>
void each(F& f, ActorUpdate& m) {
  f("actor", m.actor), f("state", m.state), f("incarnation", m.incarnation);
  f("worker", m.worker), f("error", m.error), f("retry_at_ns", m.retry_at_ns);
  f("silent", m.silent);
}
template <class F>
void each(F& f, KillActor& m) {
  f("actor", m.actor), f("may_restart", m.may_restart);
}
template <class F>
void each(F& f, FindActor& m) {
  f("request", m.request), f("name", m.name), f("name_space", m.name_space);
}
template <class F>
void each(F& f, FoundActor& m) {
  f("request", m.request), f("found", m.found), f("actor", m.actor), f("lifetime", m.lifetime);
  f("class_name", m.class_name), f("error", m.error);
}
template <class F>
void each(F& f, NeedExtent& m) {
  f("bytes", m.bytes), f("request", m.request);
}
template <class F>
void each(F& f, GiveExtent& m) {
  f("extent", m.extent), f("bytes", m.bytes), f("error", m.error), f("request", m.request);
}
template <class F>
void each(F& f, ExtentMapped& m) {
  f("extent", m.extent);
}
template <class F>
void each(F& f, ExtentSealed& m) {
  f("extent", m.extent);
}
template <class F>
void each(F& f, NeedReader& m) {
  f("is_segment", m.is_segment), f("id", m.id);
}
template <class F>
void each(F& f, GiveReader& m) {
  f("is_segment", m.is_segment), f("id", m.id), f("incarnation", m.incarnation);
  f("bytes", m.bytes), f("error", m.error);
}
template <class F>
void each(F& f, Recycle& m) {
  f("slot", m.slot), f("generation", m.generation);
}
template <class F>
void each(F& f, StoreTables& m) {
  f("processes", m.processes), f("slots", m.slots), f("extents", m.extents);
  f("process", m.process), f("incarnation", m.incarnation), f("extent_bytes", m.extent_bytes);
}
template <class F>
void each(F&, StoreAttached&) {}
template <class F>
void each(F&, MemoryPressure&) {}
template <class F>
void each(F& f, Adopt& m) {
  f("location", m.location), f("site", m.site), f("process", m.process), f("frame", m.frame),
      f("waiting", m.waiting);
}
template <class F>
void each(F& f, CallSite& m) {
  f("number", m.number), f("text", m.text);
}
template <class F>
void each(F& f, Unpinned& m) {
  f("process", m.process), f("slot", m.slot);
}
template <class F>
void each(F& f, Forget& m) {
  f("is_segment", m.is_segment), f("id", m.id);
}
template <class F>
void each(F& f, GiveBack& m) {
  f("extent", m.extent);
}
template <class F>
void each(F& f, WhereIs& m) {
  f("request", m.request), f("location", m.location);
}
template <class F>
void each(F& f, NowAt& m) {
  f("request", m.request), f("location", m.location), f("error", m.error);
}
template <class F>
void each(F& f, Replicate& m) {
  f("request", m.request), f("object", m.object), f("copies", m.copies);
  f("timeout_ns", m.timeout_ns);
}
template <class F>
void each(F& f, Replicated& m) {
  f("request", m.request), f("error", m.error);
}
template <class F>
void each(F& f, NameObject& m) {
  f("request", m.request), f("verb", m.verb), f("name", m.name), f("object", m.object);
  f("fingerprint", m.fingerprint), f("type", m.type);
}
template <class F>
void each(F& f, NamedObject& m) {
  f("request", m.request), f("found", m.found), f("object", m.object);
  f("fingerprint", m.fingerprint), f("type", m.type), f("error", m.error);
}
template <class F>
void each(F& f, Locate& m) {
  f("request", m.request), f("objects", m.objects);
}
template <class F>
void each(F& f, ObjectPlace& m) {
  f("index", m.index), f("state", m.state), f("bytes", m.bytes), f("spilled", m.spilled);
  f("nodes", m.nodes);
}
template <class F>
void each(F& f, Located& m) {
  f("request", m.request), f("places", m.places), f("more", m.more);
}
template <class F>
void each(F& f, Explain& m) {
  f("request", m.request), f("key", m.key), f("actor", m.actor);
}
template <class F>
void each(F& f, Explained& m) {
  f("request", m.request), f("why", m.why);
}
template <class F>
void each(F& f, Rebuild& m) {
  f("object", m.object), f("lost", m.lost);
}
template <class F>
void each(F& f, Rebuilt& m) {
  f("object", m.object), f("value", m.value);
}
template <class F>
void each(F& f, SitePace& m) {
  f("module", m.function.module), f("offset", m.function.offset), f("tasks", m.tasks);
  f("ran_ns", m.ran_ns);
}
template <class F>
void each(F& f, Pace& m) {
  f("sites", m.sites);
}
template <class F>
void each(F& f, Lineage& m) {
  f("object", m.object);
}
template <class F>
void each(F& f, KeptCall& m) {
  f("number", m.number), f("call", m.call), f("made", m.made), f("demand", m.demand);
  f("retries_left", m.retries_left), f("retry_on", m.retry_on), f("input_bytes", m.input_bytes);
}
template <class F>
void each(F& f, MadeBy& m) {
  f("object", m.object), f("call", m.call), f("result", m.result);
  f("retries_left", m.retries_left);
}
template <class F>
void each(F& f, ForgetCall& m) {
  f("number", m.number);
}
template <class F>
void each(F& f, ListNodes& m) {
  f("request", m.request);
}
template <class F>
void each(F& f, NodeRow& m) {
  f("id", m.id), f("name", m.name), f("alive", m.alive), f("cpus", m.cpus);
  f("cpus_free", m.cpus_free), f("gpus", m.gpus), f("gpus_free", m.gpus_free);
  f("memory", m.memory), f("store_capacity", m.store_capacity), f("store_used", m.store_used);
  f("workers", m.workers), f("resources", m.resources);
  f("draining", m.draining), f("suspect", m.suspect), f("address", m.address);
}
template <class F>
void each(F& f, Nodes& m) {
  f("request", m.request), f("rows", m.rows);
}
template <class F>
void each(F& f, Shutdown& m) {
  f("why", m.why), f("cancels", m.cancels);
}

template <class F>
void each(F& f, StopQuestion& m) {
  f("job", m.job), f("user", m.user);
}
template <class F>
void each(F& f, StackQuestion& m) {
  f("pid", m.pid), f("actor", m.actor), f("job", m.job);
}
template <class F>
void each(F& f, LogQuestion& m) {
  f("job", m.job), f("after", m.after), f("most", m.most), f("wait_ms", m.wait_ms);
  f("until_complete", m.until_complete);
}
template <class F>
void each(F& f, ListQuestion& m) {
  f("kind", m.kind), f("limit", m.limit), f("where", m.where), f("sort", m.sort);
  f("after", m.after);
}
template <class F>
void each(F& f, Inquire& m) {
  f("request", m.request), f("about", m.about), f("node", m.node), f("logs", m.logs);
  f("rows", m.rows), f("stacks", m.stacks), f("stop", m.stop);
}
template <class F>
void each(F& f, AskRows& m) {
  f("request", m.request), f("rows", m.rows);
}
template <class F>
void each(F& f, GiveRows& m) {
  f("request", m.request), f("offset", m.offset), f("bytes", m.bytes), f("why", m.why);
}
template <class F>
void each(F& f, Answer& m) {
  f("request", m.request), f("offset", m.offset), f("bytes", m.bytes), f("error", m.error);
}

// --- the members of messages between agents: peer.hpp ---

template <class F>
void each(F& f, OwnedRef& m) {
  f("object", m.object), f("owner", m.owner);
}
template <class F>
void each(F& f, PeerLeaseRequest& m) {
  f("process", m.process), f("key", m.key), f("count", m.count), f("job", m.job);
  f("demand", m.demand), f("no_faster", m.no_faster);
}
template <class F>
void each(F& f, PeerLeaseWithdraw& m) {
  f("process", m.process), f("key", m.key);
}
template <class F>
void each(F& f, PeerLeaseGranted& m) {
  f("process", m.process), f("key", m.key), f("lease", m.lease), f("worker", m.worker);
  f("gpus", m.gpus);
}
template <class F>
void each(F& f, PeerLeaseRefused& m) {
  f("process", m.process), f("key", m.key), f("count", m.count), f("why", m.why);
  f("for_ever", m.for_ever);
}
template <class F>
void each(F& f, PeerLeaseReclaim& m) {
  f("process", m.process), f("lease", m.lease);
}
template <class F>
void each(F& f, PeerLeaseReturned& m) {
  f("process", m.process), f("lease", m.lease);
}
template <class F>
void each(F& f, PeerConnect& m) {
  f("process", m.process), f("worker", m.worker), f("actor", m.actor);
  f("incarnation", m.incarnation);
}
template <class F>
void each(F& f, PeerFrame& m) {
  f("from", m.from), f("to", m.to), f("refs", m.refs);
}
template <class F>
void each(F& f, PeerProcessGone& m) {
  f("process", m.process), f("peer", m.peer), f("started", m.started), f("reason", m.reason);
  f("stack", m.stack), f("last_lines", m.last_lines);
}
template <class F>
void each(F& f, PeerCredit& m) {
  f("from", m.from), f("to", m.to), f("consumed", m.consumed);
}
template <class F>
void each(F& f, PeerInquire& m) {
  f("request", m.request), f("about_logs", m.about_logs), f("logs", m.logs);
  f("rows", m.rows);
  f("about_stacks", m.about_stacks), f("stacks", m.stacks), f("stop", m.stop);
}
template <class F>
void each(F& f, PeerAnswer& m) {
  f("request", m.request), f("offset", m.offset), f("bytes", m.bytes), f("error", m.error);
}
template <class F>
void each(F& f, PeerHold& m) {
  f("object", m.object), f("holder", m.holder), f("delta", m.delta);
}
template <class F>
void each(F& f, PeerAwait& m) {
  f("object", m.object);
}
template <class F>
void each(F& f, PeerRebuild& m) {
  f("object", m.object), f("lost", m.lost);
}
template <class F>
void each(F& f, PeerReady& m) {
  f("object", m.object), f("value", m.value), f("refs", m.refs);
}
template <class F>
void each(F& f, PeerKeep& m) {
  f("object", m.object), f("keep", m.keep), f("copies", m.copies), f("orphan", m.orphan);
}
template <class F>
void each(F& f, PeerKept& m) {
  f("object", m.object), f("error", m.error);
}
template <class F>
void each(F& f, PeerFind& m) {
  f("object", m.object);
}
template <class F>
void each(F& f, PeerHeld& m) {
  f("round", m.round), f("objects", m.objects), f("members", m.members);
}
template <class F>
void each(F& f, PeerUnused& m) {
  f("round", m.round), f("objects", m.objects);
}
template <class F>
void each(F& f, PeerKeeping& m) {
  f("objects", m.objects);
}
template <class F>
void each(F& f, PeerLocate& m) {
  f("request", m.request), f("objects", m.objects);
}
template <class F>
void each(F& f, PeerPlace& m) {
  f("index", m.index), f("state", m.state), f("bytes", m.bytes), f("here", m.here);
  f("spilled", m.spilled), f("forward", m.forward);
}
template <class F>
void each(F& f, PeerLocated& m) {
  f("request", m.request), f("places", m.places);
}
template <class F>
void each(F& f, PullRequest& m) {
  f("transfer", m.transfer), f("object", m.object), f("offset", m.offset), f("stamp", m.stamp);
  f("without", m.without), f("direct", m.direct);
}
template <class F>
void each(F& f, PullElsewhere& m) {
  f("transfer", m.transfer), f("node", m.node);
}
template <class F>
void each(F& f, PullData& m) {
  f("transfer", m.transfer), f("offset", m.offset), f("bytes", m.bytes);
}
template <class F>
void each(F& f, PullOnBulk& m) {
  f("transfer", m.transfer), f("bytes", m.bytes);
}
template <class F>
void each(F& f, PullRefused& m) {
  f("transfer", m.transfer), f("error", m.error);
}
template <class F>
void each(F& f, BulkOffer& m) {
  f("connection_high", m.connection_high), f("connection_low", m.connection_low);
  f("host", m.host), f("port", m.port), f("key", m.key);
}
template <class F>
void each(F& f, ProgramRequest& m) {
  f("job", m.job), f("file", m.file), f("offset", m.offset);
}
template <class F>
void each(F& f, ProgramData& m) {
  f("job", m.job), f("file", m.file), f("offset", m.offset), f("bytes", m.bytes);
  f("error", m.error);
}
template <class F>
void each(F& f, Creation& m) {
  f("create", m.create), f("refs", m.refs);
}

// --- functions on these lists ---

/// Returns a random message that respects every bound; inline values lie in a payload of
/// `payload_size` bytes.
CallMessage random_call(Random& random, std::size_t payload_size);
NodeMessage random_node(Random& random, std::size_t payload_size);
/// Returns a random message of the kind with this index. With `tidy` its members are short,
/// readable and never empty.
CallMessage random_call(Random& random, std::size_t payload_size, std::size_t member,
                        bool tidy = false);
NodeMessage random_node(Random& random, std::size_t payload_size, std::size_t member,
                        bool tidy = false);

PeerMessage random_peer(Random& random, std::size_t payload_size, std::size_t member,
                        bool tidy = false);
Creation random_creation(Random& random, std::size_t payload_size, bool tidy = false);

/// Returns a line "name.member = value" for every member; equal texts mean equal messages.
std::string text_of(const CallMessage& message);
std::string text_of(const NodeMessage& message);
std::string text_of(const PeerMessage& message);
std::string text_of(const Creation& creation);
/// Returns the name of the type, such as "Call".
std::string_view name_of(const CallMessage& message);
std::string_view name_of(const NodeMessage& message);
std::string_view name_of(const PeerMessage& message);

/// Returns a frame as its receiver sees it: the head, then a payload.
Blob frame_of(const CallMessage& message, BlobView payload);
Blob frame_of(const NodeMessage& message, BlobView payload);
Blob frame_of(const PeerMessage& message, BlobView payload);
Blob random_bytes(Random& random, std::size_t size);

}  // namespace troupe::wire::samples

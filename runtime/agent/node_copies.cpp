/// Copies in folders that all nodes see: those of this node's objects that other nodes hold, and
/// those that nodes have left which are gone.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/client/values.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::agent {
namespace {

/// Memory for bytes that come from a copy may be taken by others each time; then one asks again,
/// for so long.
constexpr Duration kRoomAtMost = std::chrono::seconds(60);

wire::Value lost_with_its_node(const Error& why) {
  wire::Value value;
  value.kind = wire::Value::Kind::error;
  value.error =
      Error(Code::object_lost, "the node that owned the object is gone, and " + why.message())
          .shared_info();
  return value;
}

}  // namespace

// --- of this node's objects

void Node::wants_copy(ObjectId object) {
  copy_plan_.wanted(object, steady_now());
}

void Node::copy_over(ObjectId object) {
  if (copy_plan_.over(object)) copies_->drop(object);
}

/// What is on this node's own disk is brought back first.
void Node::begin_copy(ObjectId object, Time now) {
  const OwnerTable::Abroad held = owners_.held_abroad(object);
  if (held.value == nullptr) return copy_plan_.skipped(object);
  const bool shared = held.value->kind == wire::Value::Kind::shared;
  copy_plan_.began(object, shared ? held.value->location.length : held.payload.size());
  const objectstore::Location name = client::store_location(held.value->location);
  if (!shared || !spiller_ || spiller_->where(name)) return write_copy(object, now);
  Asked asked;
  asked.what = Asked::What::copy;
  asked.object = object;
  spiller_->find(ask(std::move(asked)), name, now);
}

/// What the owner would answer to a PeerAwait, with the bytes behind it.
void Node::write_copy(ObjectId object, Time now) {
  const OwnerTable::Abroad held = owners_.held_abroad(object);
  if (held.value == nullptr || copy_plan_.is_over(object))
    return copy_plan_.ended(object, now, false);
  objectstore::Pinned view;
  if (held.value->kind == wire::Value::Kind::shared) {
    const objectstore::Location name = client::store_location(held.value->location);
    const auto at = spiller_ ? spiller_->where(name) : name;
    auto opened = at ? host_->open_local(*at) : Error(Code::object_lost, "it is on disk");
    if (!opened) return copy_plan_.ended(object, now, false);
    view = *std::move(opened);
  }
  const BlobView note = copy_writer_.encode(answer_of(object, *held.value), held.payload);
  const auto begun = copies_->write(object, Blob(note.begin(), note.end()), view.bytes(), now);
  if (!begun) return copy_failed(object, begun.error(), now);
  copying_.insert_or_assign(object, std::move(view));
}

/// Said once, until one succeeds: it is tried again.
void Node::copy_failed(ObjectId object, const Error& why, Time now) {
  copy_plan_.ended(object, now, false);
  if (!std::exchange(copies_fail_, true))
    std::fprintf(stderr, "troupe: %s: objects are not copied to the shared spill folders: %s\n",
                 options_.name.c_str(), why.what());
}

// --- of nodes that are gone

/// Its value; answered by owners_.ready_from_owner().
void Node::look_for_copy(ProcessIndex owner, ObjectId object) {
  looking_[object] = owner;
  copies_->look(dead_nodes_.at(owner), object);
}

/// Its bytes; answered by owners_.pulled() or pull_failed().
void Node::want_copy(ProcessIndex owner, ObjectId object, std::uint64_t bytes) {
  const auto [at, fresh] = reading_.try_emplace(object);
  if (!fresh) return;
  at->second.node = dead_nodes_.at(owner);
  at->second.bytes = bytes;
  at->second.until = steady_now() + kRoomAtMost;
  unread_.push_back(object);
}

/// Memory that is being read into cannot be spilled: it must not be all there is.
bool Node::may_read_copy() const {
  return !unread_.empty() &&
         (reading_bytes_ == 0 ||
          reading_bytes_ + reading_.at(unread_.front()).bytes <= host_->stats().arena / 4);
}

void Node::read_copy(ObjectId object, Time now) {
  Reading& reading = reading_.at(object);
  auto memory = host_->create_local(reading.bytes, false);  // the disk's thread touches it
  if (memory) {
    const std::span<std::byte> into = memory->bytes().first(reading.bytes);
    reading.memory = *std::move(memory);
    reading_bytes_ += reading.bytes;
    return copies_->read(reading.node, object, into);
  }
  if (memory.error().code() != Code::out_of_memory || !spiller_ || now >= reading.until)
    return copy_has_no_room(object, memory.error());
  Asked asked;
  asked.what = Asked::What::room;
  asked.object = object;
  spiller_->need(ask(std::move(asked)), 0, reading.bytes, now);
}

/// There may be room now; the spiller that says so cannot be asked again at once.
void Node::room_for_copy(ObjectId object) {
  unread_.push_front(object);
}

void Node::copy_has_no_room(ObjectId object, const Error& why) {
  reading_.erase(object);
  owners_.pull_failed(object, why);
}

void Node::copy_looked_at(objectstore::CopyDone& done) {
  const auto found = looking_.extract(done.object);
  if (!found) return;
  const ProcessIndex owner = found.mapped();
  if (!done.error) {
    const auto decoded = wire::decode_peer(done.note);
    const auto* ready = decoded ? std::get_if<wire::PeerReady>(&decoded->message) : nullptr;
    const bool is_whole =
        ready != nullptr && ready->object == done.object &&
        (ready->value.kind != wire::Value::Kind::remote || ready->value.remote_bytes == done.size);
    if (is_whole && take_value(owner, kSelf, *ready, decoded->payload)) return;
    done.error = Error(Code::object_lost, "its copy makes no sense");
  }
  owners_.ready_from_owner(owner, done.object, lost_with_its_node(*done.error), {});
}

void Node::copy_read(const objectstore::CopyDone& done) {
  const auto found = reading_.extract(done.object);
  Reading& reading = found.mapped();
  reading_bytes_ -= reading.bytes;
  if (done.error) return owners_.pull_failed(done.object, *done.error);
  const objectstore::Location at = host_->local().seal(std::move(reading.memory), 0, reading.bytes);
  const auto adopted = host_->adopt(0, at);
  TROUPE_ASSERT(adopted.ok(), "the agent's own object can be adopted");
  may_spill(client::wire_location(at));
  owners_.pulled(done.object, client::wire_location(at));
}

// --- the loop

void Node::serve_copies() {
  if (!copies_) return;
  const Time now = steady_now();
  if (std::exchange(copies_ready_, false))
    for (objectstore::CopyDone& done : copies_->take_done(now)) {
      switch (done.kind) {
        case objectstore::CopyDone::Kind::wrote:
          copying_.erase(done.object);
          if (done.error) {
            copy_failed(done.object, *done.error, now);
          } else {
            copy_plan_.ended(done.object, now, true);
            copies_fail_ = false;
          }
          break;
        case objectstore::CopyDone::Kind::looked: copy_looked_at(done); break;
        case objectstore::CopyDone::Kind::read: copy_read(done); break;
      }
    }
  for (std::size_t left = unread_.size(); left > 0 && may_read_copy(); --left) {
    const ObjectId object = unread_.front();
    unread_.pop_front();
    read_copy(object, now);
  }
  while (const auto object = copy_plan_.next(now)) begin_copy(*object, now);
}

Time Node::copies_deadline() const {
  return may_read_copy() ? Time{} : copy_plan_.next_deadline();
}

}  // namespace troupe::agent

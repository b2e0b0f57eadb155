/// Node's copies of objects in shared folders (TROUPE_SPILL_SHARED): writes those of this node's
/// objects that other nodes hold, and reads those of nodes that are gone.
#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::agent {
namespace {

/// How long memory for the bytes of a copy is asked for again, if other requests take it each time.
constexpr Duration kRoomAtMost = std::chrono::seconds(60);
/// A look or a read ends in an error after this time if the folder does not answer.
constexpr Duration kAnswersWithin = std::chrono::seconds(30);
constexpr Duration kLookAgain = std::chrono::seconds(1);
constexpr int kMostBegun = 256;  ///< in one pass of the loop

wire::Value lost_with_its_node(const Error& why) {
  return internal::lost("the node that owned the object is gone, and " + why.message());
}

}  // namespace

// --- of this node's objects

void Node::wants_copy(ObjectId object) {
  copy_plan_.wanted(object, steady_now());
}

void Node::copy_over(ObjectId object) {
  if (copy_plan_.over(object)) copies_->drop(object);
}

/// Begins a copy of the object. An object on this node's own disk is brought back to memory first.
void Node::begin_copy(ObjectId object, Time now) {
  const ReferenceTable::HeldValue held = references_.held_remotely(object);
  if (held.value == nullptr) return copy_plan_.skipped(object);
  const bool shared = held.value->kind == wire::Value::Kind::shared;
  const std::uint64_t bytes = shared ? held.value->location.length : held.payload.size();
  copy_plan_.began(object, bytes);
  if (const auto room = copies_->has_room(bytes, now); !room)
    return copy_failed(object, room.error(), now);
  const objectstore::Location name = wire::store_location(held.value->location);
  if (!shared || !spiller_ || spiller_->where(name)) return write_copy(object, now);
  Asked asked;
  asked.what = Asked::What::copy;
  asked.object = object;
  spiller_->find(ask(asked), name, now);
}

/// Writes the copy: the PeerReady with which the owner would answer a PeerAwait, and the bytes.
void Node::write_copy(ObjectId object, Time now) {
  const ReferenceTable::HeldValue held = references_.held_remotely(object);
  if (held.value == nullptr || copy_plan_.is_over(object))
    return copy_plan_.ended(object, now, false);
  objectstore::Pinned view;
  if (held.value->kind == wire::Value::Kind::shared) {
    const objectstore::Location name = wire::store_location(held.value->location);
    const auto at = spiller_ ? spiller_->where(name) : name;
    auto opened = at ? host_->open_local(*at) : Error(Code::object_lost, "it is on disk");
    if (!opened) return copy_plan_.ended(object, now, false);
    view = *std::move(opened);
  }
  const BlobView note = copy_writer_.encode(owners_.answer_of(object, *held.value), held.payload);
  const auto begun = copies_->write(object, Blob(note.begin(), note.end()), view.bytes(), now);
  if (!begun) return copy_failed(object, begun.error(), now);
  copying_.insert_or_assign(object, std::move(view));
}

/// Ends a copy that failed; it is tried again. Logs the first failure only, until a copy succeeds,
/// and none of an object that was freed meanwhile.
void Node::copy_failed(ObjectId object, const Error& why, Time now) {
  if (why.code() == Code::out_of_disk) copy_plan_.refused(now);
  const bool is_over = copy_plan_.is_over(object);
  copy_plan_.ended(object, now, false);
  if (!is_over && !std::exchange(copies_fail_, true))
    log_line("%s: objects are not copied to the shared spill folders: %s", options_.name.c_str(),
             why.what());
}

// --- of nodes that are gone, and of this one when its own bytes have gone bad

bool Node::look_in_folders(ProcessIndex owner, ObjectId object,
                           std::optional<std::uint64_t> bytes) {
  if (!copies_) return false;
  if (bytes)
    want_copy(owner, object, *bytes);
  else
    look_for_copy(owner, object);
  return true;
}

/// Looks for the object's value in the shared folders; references_.ready_from_owner() answers.
void Node::look_for_copy(ProcessIndex owner, ObjectId object) {
  const Time until = steady_now() + kAnswersWithin;
  looking_[object] = {owner, until, {}};
  copies_due_ = std::min(copies_due_, until);
  copies_->look(owners_.node_behind(owner), object);
}

/// Reads the object's bytes from a copy; references_.pulled() or pull_failed() answers.
void Node::want_copy(ProcessIndex owner, ObjectId object, std::uint64_t bytes) {
  const auto [at, fresh] = reading_.try_emplace(object);
  if (!fresh) {  // an earlier read that was given up still has the memory: this ends in an error
    if (at->second.given_up) too_late_.push_back(object);
    return;
  }
  at->second.node = owners_.node_behind(owner);
  at->second.bytes = bytes;
  at->second.until = steady_now() + kRoomAtMost;
  unread_.push_back(object);
}

/// Returns whether the next copy may be read now. Memory that is being read into cannot be spilled,
/// so all such reads have a quarter of the arena, or one object.
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
    reading.until = now + kAnswersWithin;
    copies_due_ = std::min(copies_due_, reading.until);
    reading_bytes_ += reading.bytes;
    return copies_->read(reading.node, object, into);
  }
  if (memory.error().code() != Code::out_of_memory || !spiller_ || now >= reading.until)
    return copy_has_no_room(object, memory.error());
  Asked asked;
  asked.what = Asked::What::room;
  asked.object = object;
  spiller_->need(ask(asked), 0, reading.bytes, now);
}

/// Reads the copy in a later pass: there may be room now, but the spiller, which is the caller,
/// must not be called back.
void Node::room_for_copy(ObjectId object) {
  unread_.push_front(object);
}

void Node::copy_has_no_room(ObjectId object, const Error& why) {
  reading_.erase(object);
  references_.pull_failed(object, why);
}

void Node::copy_looked_at(objectstore::CopyDone& done, Time now) {
  const auto at = looking_.find(done.object);
  if (at == looking_.end()) return;  // the answer came after its time
  if (done.error && done.error->code() == Code::unavailable &&
      now + kLookAgain < at->second.until) {
    at->second.again = now + kLookAgain;
    copies_due_ = std::min(copies_due_, now + kLookAgain);
    return;
  }
  const ProcessIndex owner = at->second.owner;
  looking_.erase(at);
  if (!done.error) {
    const auto decoded = wire::decode_peer(done.note);
    const auto* ready = decoded ? std::get_if<wire::PeerReady>(&decoded->message) : nullptr;
    const bool is_whole =
        ready != nullptr && ready->object == done.object &&
        (ready->value.kind != wire::Value::Kind::remote || ready->value.remote_bytes == done.size);
    if (is_whole && owners_.take_value(owner, kSelf, *ready, decoded->payload)) return;
    done.error = Error(Code::object_lost, "its copy makes no sense");
  }
  references_.ready_from_owner(owner, done.object, lost_with_its_node(*done.error), {});
}

void Node::copy_read(const objectstore::CopyDone& done) {
  const auto found = reading_.extract(done.object);
  Reading& reading = found.mapped();
  reading_bytes_ -= reading.bytes;
  if (reading.given_up) return;
  if (done.error) return references_.pull_failed(done.object, *done.error);
  const objectstore::Location at = host_->local().seal(std::move(reading.memory), 0, reading.bytes);
  const auto adopted = host_->adopt(0, at);
  TROUPE_ASSERT(adopted.ok(), "the agent's own object can be adopted");
  may_spill(wire::wire_location(at));
  references_.pulled(done.object, wire::wire_location(at));
}

/// Ends waits for folders that do not answer in time. The memory of such a read is kept until the
/// disk's thread has finished with it.
void Node::expire_copies(Time now) {
  const Error slow(Code::object_lost, "the shared spill folders did not answer within 30 s");
  for (const ObjectId object : std::exchange(too_late_, {})) references_.pull_failed(object, slow);
  if (now < copies_due_) return;
  copies_due_ = Time::max();
  for (auto at = looking_.begin(); at != looking_.end();) {
    auto& [object, look] = *at;
    if (look.again && *look.again <= now) {
      look.again.reset();
      copies_->look(owners_.node_behind(look.owner), object);
    }
    if (look.until > now) {
      copies_due_ = std::min(copies_due_, look.again.value_or(look.until));
      ++at;
      continue;
    }
    const auto late = looking_.extract(at++);
    references_.ready_from_owner(late.mapped().owner, late.key(), lost_with_its_node(slow), {});
  }
  for (auto& [object, reading] : reading_) {
    if (!reading.memory || reading.given_up) continue;
    if (reading.until > now) {
      copies_due_ = std::min(copies_due_, reading.until);
      continue;
    }
    reading.given_up = true;
    references_.pull_failed(object, slow);
  }
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
        case objectstore::CopyDone::Kind::looked: copy_looked_at(done, now); break;
        case objectstore::CopyDone::Kind::read: copy_read(done); break;
      }
    }
  expire_copies(now);
  for (std::size_t left = unread_.size(); left > 0 && may_read_copy(); --left) {
    const ObjectId object = unread_.front();
    unread_.pop_front();
    read_copy(object, now);
  }
  for (int left = kMostBegun; left > 0; --left) {
    const auto object = copy_plan_.next(now);
    if (!object) break;
    begin_copy(*object, now);
  }
}

Time Node::copies_deadline() const {
  if (may_read_copy() || !too_late_.empty()) return Time{};
  return std::min(copy_plan_.next_deadline(), copies_due_);
}

}  // namespace troupe::agent

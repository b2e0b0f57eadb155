#include "troupe/runtime/agent/folder_copies.hpp"

#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/agent/options.hpp"
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

void FolderCopies::open(objectstore::SharedOptions options) {
  auto opened = objectstore::SharedCopies::open(std::move(options));
  if (!opened) refuse_shared_folders(opened.error());
  copies_ = *std::move(opened);
  below_.references.keep_copies();
}

// --- of this node's objects

/// Begins a copy of the object. An object on this node's own disk is brought back to memory first.
void FolderCopies::begin(ObjectId object, Time now) {
  const ReferenceTable::HeldValue held = below_.references.held_remotely(object);
  if (held.value == nullptr) return plan_.skipped(object);
  const bool shared = held.value->kind == wire::Value::Kind::shared;
  const std::uint64_t bytes = shared ? held.value->location.length : held.payload.size();
  plan_.began(object, bytes);
  if (const auto room = copies_->has_room(bytes, now); !room)
    return write_failed(object, room.error(), now);
  const objectstore::Location name = wire::store_location(held.value->location);
  if (!shared || below_.store.where(name)) return write(object, now);
  below_.store.bring_back(object, name, now);
}

void FolderCopies::write(ObjectId object, Time now) {
  const ReferenceTable::HeldValue held = below_.references.held_remotely(object);
  if (held.value == nullptr || plan_.is_over(object)) return plan_.ended(object, now, false);
  objectstore::Pinned view;
  if (held.value->kind == wire::Value::Kind::shared) {
    const objectstore::Location name = wire::store_location(held.value->location);
    const auto at = below_.store.where(name);
    auto opened = at ? below_.host.open_local(*at) : Error(Code::object_lost, "it is on disk");
    if (!opened) return plan_.ended(object, now, false);
    view = *std::move(opened);
  }
  const BlobView note = writer_.encode(below_.owners.answer_of(object, *held.value), held.payload);
  const auto begun = copies_->write(object, Blob(note.begin(), note.end()), view.bytes(), now);
  if (!begun) return write_failed(object, begun.error(), now);
  copying_.insert_or_assign(object, std::move(view));
}

void FolderCopies::write_failed(ObjectId object, const Error& why, Time now) {
  if (why.code() == Code::out_of_disk) plan_.refused(now);
  const bool is_over = plan_.is_over(object);
  plan_.ended(object, now, false);
  if (!is_over && !std::exchange(failed_, true))
    log_line("%s: objects are not copied to the shared spill folders: %s", below_.node.c_str(),
             why.what());
}

// --- of nodes that are gone, and of this one when its own bytes have gone bad

void FolderCopies::look_for(ProcessIndex owner, ObjectId object, Time now) {
  const Time until = now + kAnswersWithin;
  looking_[object] = {owner, until, {}};
  due_ = std::min(due_, until);
  copies_->look(below_.owners.node_behind(owner), object);
}

void FolderCopies::want(ProcessIndex owner, ObjectId object, std::uint64_t bytes, Time now) {
  const auto [at, fresh] = reading_.try_emplace(object);
  if (!fresh) {  // an earlier read that was given up still has the memory: this ends in an error
    if (at->second.given_up) too_late_.push_back(object);
    return;
  }
  at->second.node = below_.owners.node_behind(owner);
  at->second.bytes = bytes;
  at->second.until = now + kRoomAtMost;
  unread_.push_back(object);
}

/// Returns whether the next copy may be read now. Memory that is being read into cannot be spilled,
/// so all such reads have a quarter of the arena, or one object.
bool FolderCopies::may_read() const {
  return !unread_.empty() &&
         (reading_bytes_ == 0 ||
          reading_bytes_ + reading_.at(unread_.front()).bytes <= below_.host.stats().arena / 4);
}

void FolderCopies::read(ObjectId object, Time now) {
  Reading& reading = reading_.at(object);
  auto memory = below_.host.create_local(reading.bytes, false);  // the disk's thread touches it
  if (memory) {
    const std::span<std::byte> into = memory->bytes().first(reading.bytes);
    reading.memory = *std::move(memory);
    reading.until = now + kAnswersWithin;
    due_ = std::min(due_, reading.until);
    reading_bytes_ += reading.bytes;
    return copies_->read(reading.node, object, into);
  }
  if (memory.error().code() != Code::out_of_memory || now >= reading.until ||
      !below_.store.need_room(object, reading.bytes, now))
    no_room(object, memory.error());
}

void FolderCopies::no_room(ObjectId object, const Error& why) {
  reading_.erase(object);
  below_.references.pull_failed(object, why);
}

void FolderCopies::looked_at(objectstore::CopyDone& done, Time now) {
  const auto at = looking_.find(done.object);
  if (at == looking_.end()) return;  // the answer came after its time
  if (done.error && done.error->code() == Code::unavailable &&
      now + kLookAgain < at->second.until) {
    at->second.again = now + kLookAgain;
    due_ = std::min(due_, now + kLookAgain);
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
    if (is_whole && below_.owners.take_value(owner, kSelf, *ready, decoded->payload)) return;
    done.error = Error(Code::object_lost, "its copy makes no sense");
  }
  below_.references.ready_from_owner(owner, done.object, lost_with_its_node(*done.error), {});
}

void FolderCopies::was_read(const objectstore::CopyDone& done) {
  const auto found = reading_.extract(done.object);
  Reading& reading = found.mapped();
  reading_bytes_ -= reading.bytes;
  if (reading.given_up) return;
  if (done.error) return below_.references.pull_failed(done.object, *done.error);
  const objectstore::Location at =
      below_.host.local().seal(std::move(reading.memory), 0, reading.bytes);
  const auto adopted = below_.host.adopt(0, at);
  TROUPE_ASSERT(adopted.ok(), "the agent's own object can be adopted");
  below_.store.may_spill(wire::wire_location(at));
  below_.references.pulled(done.object, wire::wire_location(at));
}

/// Ends waits for folders that do not answer in time. The memory of such a read is kept until the
/// disk's thread has finished with it.
void FolderCopies::expire(Time now) {
  const Error slow(Code::object_lost, "the shared spill folders did not answer within 30 s");
  for (const ObjectId object : std::exchange(too_late_, {}))
    below_.references.pull_failed(object, slow);
  if (now < due_) return;
  due_ = Time::max();
  for (auto at = looking_.begin(); at != looking_.end();) {
    auto& [object, look] = *at;
    if (look.again && *look.again <= now) {
      look.again.reset();
      copies_->look(below_.owners.node_behind(look.owner), object);
    }
    if (look.until > now) {
      due_ = std::min(due_, look.again.value_or(look.until));
      ++at;
      continue;
    }
    const auto late = looking_.extract(at++);
    below_.references.ready_from_owner(late.mapped().owner, late.key(), lost_with_its_node(slow),
                                       {});
  }
  for (auto& [object, reading] : reading_) {
    if (!reading.memory || reading.given_up) continue;
    if (reading.until > now) {
      due_ = std::min(due_, reading.until);
      continue;
    }
    reading.given_up = true;
    below_.references.pull_failed(object, slow);
  }
}

// --- the loop

void FolderCopies::serve(Time now) {
  if (!copies_) return;
  if (std::exchange(ready_, false))
    for (objectstore::CopyDone& done : copies_->take_done(now)) {
      switch (done.kind) {
        case objectstore::CopyDone::Kind::wrote:
          copying_.erase(done.object);
          if (done.error) {
            write_failed(done.object, *done.error, now);
          } else {
            plan_.ended(done.object, now, true);
            failed_ = false;
          }
          break;
        case objectstore::CopyDone::Kind::looked: looked_at(done, now); break;
        case objectstore::CopyDone::Kind::read: was_read(done); break;
      }
    }
  expire(now);
  for (std::size_t left = unread_.size(); left > 0 && may_read(); --left) {
    const ObjectId object = unread_.front();
    unread_.pop_front();
    read(object, now);
  }
  for (int left = kMostBegun; left > 0; --left) {
    const auto object = plan_.next(now);
    if (!object) break;
    begin(*object, now);
  }
}

Time FolderCopies::next_deadline() const {
  if (!copies_) return Time::max();
  if (may_read() || !too_late_.empty()) return Time{};
  return std::min(plan_.next_deadline(), due_);
}

}  // namespace troupe::agent

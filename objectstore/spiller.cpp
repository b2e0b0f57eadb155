#include "troupe/objectstore/spiller.hpp"
#include "troupe/runtime/base/log.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::objectstore {
namespace {

Error gone() {
  return Error(Code::object_lost, "the object was freed, or is not known here");
}

}  // namespace

Spiller::Spiller(Host& host, std::unique_ptr<SpillFiles> files, Out& out, SpillerOptions options)
    : host_(host), out_(out), options_(options), files_(std::move(files)) {}

Spiller::~Spiller() {
  files_.reset();  // stops the thread before the memory that it reads and writes is freed
}

// -- objects
// ---------------------------------------------------------------------------------------

void Spiller::adopted(const Location& name, Time now) {
  Object& object = objects_[key(name)];
  object.name = object.at = name;
  object.adopted = object.used = now;
  list(object);
  if (!asks_.empty()) next_try_ = now;
}

Result<void> Spiller::free(const Location& name) {
  const auto found = objects_.find(key(name));
  if (found == objects_.end()) {
    const auto freed = host_.free(name);
    return freed ? Result<void>() : freed.error();
  }
  unlist(found->second);
  const Object object = std::move(found->second);
  objects_.erase(found);
  if (object.state != State::memory || object.lent) drop_copy(object);
  lent_.erase(key(name));
  if (object.state == State::disk || object.state == State::coming) count_on_disk(object, false);
  for (const std::uint64_t ask : object.asks) out_.refused(ask, gone());
  std::erase_if(asks_, [&](const Ask& ask) { return ask.restores == key(name); });
  if (object.state == State::disk || object.state == State::coming) return {};
  for (Ask& ask : asks_)
    if (!ask.restores && ask.process == object.at.process) ask.got_back += object.at.length;
  const auto freed = host_.free(object.at);
  return freed ? Result<void>() : freed.error();
}

std::optional<Location> Spiller::where(const Location& name) const {
  const auto found = objects_.find(key(name));
  if (found == objects_.end() || is_spilled(name)) return std::nullopt;
  return found->second.at;
}

bool Spiller::is_good(const Location& name) const {
  const auto found = objects_.find(key(name));
  return found != objects_.end() && !found->second.bad;
}

bool Spiller::is_spilled(const Location& name) const {
  const auto found = objects_.find(key(name));
  return found != objects_.end() &&
         (found->second.state == State::disk || found->second.state == State::coming);
}

void Spiller::find(std::uint64_t ask, const Location& name, Time now) {
  const auto found = objects_.find(key(name));
  if (found == objects_.end()) return out_.refused(ask, gone());
  Object& object = found->second;
  object.used = now;
  if (object.listed) move_to(extents_.at(object.at.extent.value), object.at.extent.value, now);
  if (object.state == State::memory || object.state == State::leaving)
    return out_.located(ask, object.at);
  object.asks.push_back(ask);
  if (object.state == State::coming || object.asks.size() > 1) return;
  asks_.push_back({0, 0, object.name.length, key(name), now, 0});
  serve(now);
}

void Spiller::need(std::uint64_t ask, std::uint32_t process, std::uint64_t bytes, Time now) {
  asks_.push_back({ask, process, bytes, std::nullopt, now, 0});
  serve(now);
}

void Spiller::forget(std::uint32_t process) {
  std::erase_if(asks_, [&](const Ask& ask) { return !ask.restores && ask.process == process; });
}

// -- the disk's answers
// ----------------------------------------------------------------------------

void Spiller::poll(Time now) {
  for (const SpillDone& done : files_->take_done(now)) {
    if (done.kind == SpillDone::Kind::wrote)
      wrote(done, now);
    else
      read(done, now);
  }
  serve(now);
}

void Spiller::wrote(const SpillDone& done, Time now) {
  const auto view = writing_.find(done.id);
  writing_bytes_ -= view->second.bytes().size();
  writing_.erase(view);
  const auto known = by_id_.find(done.id);
  if (known == by_id_.end()) return;  // freed meanwhile
  Object& object = objects_.at(known->second);
  if (done.error) {
    disk_error_ = done.error;
    by_id_.erase(known);
    object.state = State::memory;
    object.stays_until = now + std::chrono::seconds(1);
    list(object);
    return;
  }
  disk_error_.reset();
  progress_ = now;
  object.state = State::disk;
  count_on_disk(object, true);
  for (Ask& ask : asks_)
    if (!ask.restores && ask.process == object.at.process) ask.got_back += object.name.length;
  next_pressure_ = now;  // processes are to return the memory of this object
  // An error here loses no object: the copy on disk is complete, since it was written from a pinned
  // view. It is logged because it should not happen.
  if (const auto freed = host_.free(object.at); !freed)
    log_line("a spilled object of process %u had no memory to give back: %s", object.at.process,
             freed.error().what());
}

void Spiller::read(const SpillDone& done, Time now) {
  Allocation memory = std::move(reading_.at(done.id));
  reading_.erase(done.id);
  const auto known = by_id_.find(done.id);
  if (known == by_id_.end()) return;
  Object& object = objects_.at(known->second);
  const std::vector<std::uint64_t> asks = std::exchange(object.asks, {});
  object.bad = done.error.has_value();
  if (done.error) {
    object.state = State::disk;
    object.lent = false;
    for (const std::uint64_t ask : asks) out_.refused(ask, *done.error);
    return;
  }
  object.at = host_.local().seal(std::move(memory), object.name.tag, object.name.length);
  const auto adopted = host_.adopt(0, object.at);
  TROUPE_ASSERT(adopted.ok(), "the agent's own object can be adopted");
  object.state = State::memory;
  object.used = now;
  object.stays_until = now + options_.grace;
  count_on_disk(object, false);
  ++restored_;
  if (object.lent) {
    lent_.insert(key(object.name));
  } else {
    list(object);
    drop_copy(object);
  }
  for (const std::uint64_t ask : asks) out_.located(ask, object.at);
}

// -- memory
// ----------------------------------------------------------------------------------------

/// Serves the asks in turn. A small ask does not overtake a large one, which could otherwise wait
/// for ever.
void Spiller::serve(Time now) {
  while (!asks_.empty()) {
    Ask& ask = asks_.front();
    if (serve(ask, now) == Served::no_room) {
      if (!is_over(ask, now)) {
        make_room(ask.bytes, now);
        lend(now);
        next_try_ = now + options_.retry;
        return;
      }
      give_up(ask);
    } else {
      progress_ = now;
    }
    asks_.pop_front();
  }
}

/// Tries to answer one ask. try_again() is the answer when the process got enough memory back in
/// its own extents, or some and no write is under way that could give more. The second try follows
/// when empty extents of the agent were freed.
Spiller::Served Spiller::serve(Ask& ask, Time now) {
  for (int tries = 0; tries < 2; ++tries) {
    std::optional<Error> error;
    if (ask.restores) {
      const auto begun = restore(objects_.at(*ask.restores), Limit::arena);
      if (begun) return Served::yes;
      error = begun.error();
    } else if (ask.got_back >= ask.bytes || (ask.got_back > 0 && writing_.empty())) {
      out_.try_again(ask.ask);
      return Served::yes;
    } else {
      auto grant = host_.grant(ask.process, ask.bytes);
      if (grant) {
        out_.granted(ask.ask, *std::move(grant));
        return Served::yes;
      }
      error = grant.error();
    }
    if (error->code() != Code::out_of_memory || ask.bytes > host_.stats().arena) {
      shortage_ = error;
      give_up(ask);
      return Served::yes;
    }
    shortage_ = error;
    take_back(ask.restores.has_value(), now);
    if (!trim_own()) break;
  }
  return Served::no_room;
}

/// Begins to read an object back from disk. After an error there was no memory, and nothing has
/// changed.
Result<void> Spiller::restore(Object& object, Limit limit) {
  // The disk's thread is the first to touch the memory, so this loop waits for no pages.
  const std::uint64_t bytes = object.name.length;
  auto memory =
      limit == Limit::one_beyond ? host_.lend_local(bytes) : host_.create_local(bytes, false);
  if (!memory) return memory.error();
  const std::span<std::byte> into = memory->bytes().first(object.name.length);
  reading_.emplace(object.id, *std::move(memory));
  object.lent = host_.exceeds_arena();  // it may lie in the extent of another loan
  object.state = State::coming;
  files_->read(object.id, into);
  return {};
}

/// Begins to read objects as loans, where the disk refuses what would make room and no write is
/// under way. Memory beyond the arena serves no other ask, so these asks may overtake others.
void Spiller::lend(Time now) {
  if (!disk_error_ || !writing_.empty()) return;
  for (auto ask = asks_.begin(); ask != asks_.end();) {
    if (!ask->restores) {
      ++ask;
      continue;
    }
    if (!restore(objects_.at(*ask->restores), Limit::one_beyond)) return;
    ask = asks_.erase(ask);
    progress_ = now;
  }
}

/// Frees the memory of loans without a view. `gives_way`: a loan that has views gives up its copy
/// on disk instead, and is an object like others.
void Spiller::take_back(bool gives_way, Time now) {
  std::erase_if(lent_, [&](const Key& name) {
    Object& object = objects_.at(name);
    const bool is_seen = host_.is_pinned(object.at);
    if (now < object.stays_until || (is_seen && !gives_way)) return false;
    object.lent = false;
    if (is_seen) {
      drop_copy(object);
      list(object);
      return true;
    }
    object.state = State::disk;
    count_on_disk(object, true);
    (void)host_.free(object.at);  // a view that began meanwhile stays valid
    return true;
  });
}

void Spiller::drop_copy(const Object& object) {
  by_id_.erase(object.id);
  files_->drop(object.id);
}

bool Spiller::is_over(const Ask& ask, Time now) const {
  return now >= std::max(ask.since, progress_) + options_.patience ||
         now >= ask.since + options_.at_most;
}

void Spiller::give_up(const Ask& ask) {
  const Error error = why_not(ask);
  if (!ask.restores) return out_.refused(ask.ask, error);
  Object& object = objects_.at(*ask.restores);
  for (const std::uint64_t one : std::exchange(object.asks, {})) out_.refused(one, error);
}

Error Spiller::why_not(const Ask& ask) const {
  const Error error =
      shortage_ ? *shortage_ : Error(Code::out_of_memory, "the object store is full");
  if (error.code() != Code::out_of_memory || ask.bytes > host_.stats().arena) return error;
  if (disk_error_)
    return Error(Code::out_of_disk,
                 error.message() + "; and nothing can be spilled: " + disk_error_->message());
  const std::uint64_t pinned = pinned_bytes();
  return Error(Code::out_of_memory,
               error.message() + "; " +
                   (pinned != 0 ? std::to_string(pinned) +
                                      " bytes cannot be spilled, since somebody looks at them"
                                : "what is being written, or shown by views of what was let go, "
                                  "cannot be spilled"));
}

/// Releases the agent's own extents without objects. Returns whether there were any.
bool Spiller::trim_own() {
  bool some = false;
  for (const ExtentId extent : host_.local().trim(Bytes{0}))
    some |= host_.release_extent(0, extent).ok();
  return some;
}

void Spiller::make_room(std::uint64_t bytes, Time now) {
  if (now >= next_pressure_) {
    next_pressure_ = now + 5 * options_.retry;
    out_.memory_pressure();
  }
  if (writing_bytes_ >= bytes || writing_bytes_ >= options_.at_once) return;
  // choose() may return an object twice: an extent that was used at `now` keeps its place in the
  // order and may be visited again.
  for (Object* one : choose(std::min(bytes, options_.at_once) - writing_bytes_, now))
    if (one->state == State::memory) spill(*one, now);
}

void Spiller::spill(Object& object, Time now) {
  auto view = host_.open_local(object.at);
  auto id = view ? files_->write(view->bytes(), now) : Result<SpillId>(view.error());
  if (!id) {
    if (view) disk_error_ = id.error();  // without a view the object just stays in memory
    object.stays_until = now + 10 * options_.retry;
    return;
  }
  unlist(object);
  object.state = State::leaving;
  object.id = *id;
  by_id_[*id] = key(object.name);
  writing_bytes_ += view->bytes().size();
  writing_.emplace(*id, *std::move(view));
}

/// Chooses objects to spill, of at least `bytes` if there are so many. It takes whole extents,
/// since memory is returned by the extent, the least recently used first. Objects that share an
/// extent with one that must stay come last: to spill them frees no extent, only room for their
/// writer. Every extent that was visited counts as used now, so that the next ask begins with
/// others.
std::vector<Spiller::Object*> Spiller::choose(std::uint64_t bytes, Time now) {
  std::vector<Object*> chosen, aside;
  std::uint64_t sum = 0;
  for (std::size_t left = by_use_.size(); left > 0 && sum < bytes; --left) {
    const auto [used, id] = *by_use_.begin();
    if (used > now) break;
    Extent& extent = extents_.at(id);
    std::vector<Object*> objects;
    std::uint64_t here = 0;
    bool busy = false;
    for (Object* object = extent.first; object != nullptr; object = object->after) {
      const bool stays = now < object->stays_until || host_.is_pinned(object->at);
      busy |= stays;
      if (stays) continue;
      objects.push_back(object);
      here += std::max<std::uint64_t>(object->at.length, 1);
    }
    if (!busy) sum += here;
    auto& to = busy ? aside : chosen;
    to.insert(to.end(), objects.begin(), objects.end());
    move_to(extent, id, now);
  }
  for (Object* object : aside) {
    if (sum >= bytes) break;
    chosen.push_back(object);
    sum += object->at.length;
  }
  return chosen;
}

void Spiller::count_on_disk(const Object& object, bool is_there) {
  on_disk_ += is_there ? 1 : std::uint64_t{0} - 1;
  on_disk_bytes_ += is_there ? object.name.length : std::uint64_t{0} - object.name.length;
}

void Spiller::list(Object& object) {
  if (object.listed) return;
  const std::uint64_t id = object.at.extent.value;
  Extent& extent = extents_[id];
  object.listed = true;
  object.before = nullptr;
  object.after = extent.first;
  if (extent.first != nullptr) extent.first->before = &object;
  extent.first = &object;
  move_to(extent, id, object.used);
}

void Spiller::unlist(Object& object) {
  if (!object.listed) return;
  object.listed = false;
  const auto at = extents_.find(object.at.extent.value);
  (object.before != nullptr ? object.before->after : at->second.first) = object.after;
  if (object.after != nullptr) object.after->before = object.before;
  object.before = object.after = nullptr;
  if (at->second.first != nullptr) return;
  by_use_.erase({at->second.used, at->first});
  extents_.erase(at);
}

void Spiller::move_to(Extent& extent, std::uint64_t id, Time used) {
  by_use_.erase({extent.used, id});
  extent.used = std::max(extent.used, used);
  by_use_.emplace(extent.used, id);
}

// -- observe
// ---------------------------------------------------------------------------------------

Time Spiller::next_deadline() const {
  return asks_.empty() ? Time::max() : next_try_;
}

SpillerStats Spiller::stats() const {
  SpillerStats stats;
  stats.disk = files_->stats();
  stats.spilled = on_disk_;
  stats.spilled_bytes = on_disk_bytes_;
  stats.restored = restored_;
  stats.waiting = asks_.size();
  return stats;
}

Spiller::Seen Spiller::seen(const Object& object) const {
  const bool on_disk = object.state == State::disk || object.state == State::coming;
  return {object.name, on_disk, on_disk ? 0 : host_.pins(object.at), object.adopted, object.used};
}

std::optional<Spiller::Seen> Spiller::look(const Location& name) const {
  const auto found = objects_.find(key(name));
  return found == objects_.end() ? std::nullopt : std::optional(seen(found->second));
}

void Spiller::each(const std::function<void(const Seen&)>& look_at) const {
  for (const auto& [name, object] : objects_) look_at(seen(object));
}

std::uint64_t Spiller::pinned_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, extent] : extents_)
    for (const Object* object = extent.first; object != nullptr; object = object->after)
      if (host_.is_pinned(object->at)) bytes += object->at.length;
  return bytes;
}

}  // namespace troupe::objectstore

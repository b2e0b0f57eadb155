#include "troupe/objectstore/spiller.hpp"

#include <algorithm>
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
  files_.reset();  // before the memory that its thread reads and writes
}

// -- objects
// ---------------------------------------------------------------------------------------

void Spiller::adopted(const Location& name, Time now) {
  Object& object = objects_[key(name)];
  object.name = object.at = name;
  object.used = now;
}

Result<void> Spiller::free(const Location& name) {
  const auto found = objects_.find(key(name));
  if (found == objects_.end()) {
    const auto freed = host_.free(name);
    return freed ? Result<void>() : freed.error();
  }
  const Object object = std::move(found->second);
  objects_.erase(found);
  if (object.state != State::memory) {
    by_id_.erase(object.id);
    files_->drop(object.id);
  }
  for (const std::uint64_t ask : object.asks) out_.refused(ask, gone());
  std::erase_if(asks_, [&](const Ask& ask) { return ask.restores == key(name); });
  if (object.state == State::disk || object.state == State::coming) return {};
  const auto freed = host_.free(object.at);
  return freed ? Result<void>() : freed.error();
}

std::optional<Location> Spiller::where(const Location& name) const {
  const auto found = objects_.find(key(name));
  if (found == objects_.end() || is_spilled(name)) return std::nullopt;
  return found->second.at;
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
  if (object.state == State::memory || object.state == State::leaving)
    return out_.located(ask, object.at);
  object.asks.push_back(ask);
  if (object.state == State::coming || object.asks.size() > 1) return;
  asks_.push_back({0, 0, object.name.length, key(name), now + options_.patience, false});
  serve(now);
}

void Spiller::need(std::uint64_t ask, std::uint32_t process, std::uint64_t bytes, Time now) {
  asks_.push_back({ask, process, bytes, std::nullopt, now + options_.patience, false});
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
    return;
  }
  disk_error_.reset();
  object.state = State::disk;
  for (Ask& ask : asks_)
    if (!ask.restores && ask.process == object.at.process) ask.got_back = true;
  next_press_ = now;  // its memory is to be given back
  const auto freed = host_.free(object.at);
  TROUPE_ASSERT(freed.ok(), "what was spilled is adopted");
}

void Spiller::read(const SpillDone& done, Time now) {
  Allocation memory = std::move(reading_.at(done.id));
  reading_.erase(done.id);
  const auto known = by_id_.find(done.id);
  if (known == by_id_.end()) return;
  Object& object = objects_.at(known->second);
  const std::vector<std::uint64_t> asks = std::exchange(object.asks, {});
  if (done.error) {
    object.state = State::disk;
    for (const std::uint64_t ask : asks) out_.refused(ask, *done.error);
    return;
  }
  object.at = host_.local().seal(std::move(memory), object.name.tag, object.name.length);
  const auto adopted = host_.adopt(0, object.at);
  TROUPE_ASSERT(adopted.ok(), "the agent's own object can be adopted");
  object.state = State::memory;
  object.used = now;
  object.stays_until = now + options_.grace;
  by_id_.erase(known);
  files_->drop(done.id);
  ++restored_;
  for (const std::uint64_t ask : asks) out_.located(ask, object.at);
}

// -- memory
// ----------------------------------------------------------------------------------------

/// In turn: nobody overtakes who waits for more.
void Spiller::serve(Time now) {
  while (!asks_.empty()) {
    Ask& ask = asks_.front();
    if (serve(ask) == Served::no_room) {
      if (now < ask.give_up) {
        make_room(ask.bytes, now);
        next_try_ = now + options_.retry;
        return;
      }
      give_up(ask);
    }
    asks_.pop_front();
  }
}

Spiller::Served Spiller::serve(Ask& ask) {
  for (int tries = 0; tries < 2; ++tries) {
    std::optional<Error> error;
    if (ask.restores) {
      const auto begun = restore(objects_.at(*ask.restores));
      if (begun) return Served::yes;
      error = begun.error();
    } else if (ask.got_back) {
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
    if (!trim_own()) break;
  }
  return Served::no_room;
}

/// Error: there is no memory, and nothing has changed.
Result<void> Spiller::restore(Object& object) {
  auto memory = host_.create_local(object.name.length);
  if (!memory) return memory.error();
  const std::span<std::byte> into = memory->bytes().first(object.name.length);
  reading_.emplace(object.id, *std::move(memory));
  object.state = State::coming;
  files_->read(object.id, into);
  return {};
}

void Spiller::give_up(const Ask& ask) {
  Error error = shortage_ ? *shortage_ : Error(Code::out_of_memory, "the object store is full");
  if (disk_error_ && error.code() == Code::out_of_memory && ask.bytes <= host_.stats().arena)
    error = Error(Code::out_of_disk,
                  error.message() + "; and nothing can be spilled: " + disk_error_->message());
  if (!ask.restores) return out_.refused(ask.ask, error);
  Object& object = objects_.at(*ask.restores);
  for (const std::uint64_t one : std::exchange(object.asks, {})) out_.refused(one, error);
}

/// The agent's own extents in which nothing lives. True: there were some.
bool Spiller::trim_own() {
  bool some = false;
  for (const ExtentId extent : host_.local().trim(Bytes{0}))
    some |= host_.release_extent(0, extent).ok();
  return some;
}

void Spiller::make_room(std::uint64_t bytes, Time now) {
  if (now >= next_press_) {
    next_press_ = now + 5 * options_.retry;
    out_.press();
  }
  if (writing_bytes_ >= bytes || writing_bytes_ >= options_.at_once) return;
  for (const Key& one : choose(std::min(bytes, options_.at_once) - writing_bytes_, now))
    spill(objects_.at(one), now);
}

void Spiller::spill(Object& object, Time now) {
  auto view = host_.open_local(object.at);
  if (!view) return;  // its writer no longer publishes it
  auto id = files_->write(view->bytes(), now);
  if (!id) {
    disk_error_ = id.error();
    return;
  }
  object.state = State::leaving;
  object.id = *id;
  by_id_[*id] = key(object.name);
  writing_bytes_ += view->bytes().size();
  writing_.emplace(*id, *std::move(view));
}

/// Whole extents, since memory is given back by the extent; those used longest ago first.
std::vector<Spiller::Key> Spiller::choose(std::uint64_t bytes, Time now) const {
  struct Extent {
    Time used{};
    std::uint64_t bytes = 0;
    bool busy = false;  ///< somebody looks at an object in it
    std::vector<Key> objects;
  };
  std::map<std::uint64_t, Extent> extents;
  for (const auto& [name, object] : objects_) {
    if (object.state != State::memory) continue;
    Extent& extent = extents[object.at.extent.value];
    if (now < object.stays_until || host_.is_pinned(object.at)) {
      extent.busy = true;
      continue;
    }
    extent.used = std::max(extent.used, object.used);
    extent.bytes += object.at.length;
    extent.objects.push_back(name);
  }
  std::vector<const Extent*> order;
  for (const auto& [id, extent] : extents)
    if (!extent.objects.empty()) order.push_back(&extent);
  // What shares an extent with something busy frees no extent, only room for its writer.
  std::stable_sort(order.begin(), order.end(), [](const Extent* a, const Extent* b) {
    return std::tie(a->busy, a->used) < std::tie(b->busy, b->used);
  });
  std::vector<Key> chosen;
  std::uint64_t sum = 0;
  for (const Extent* extent : order) {
    if (sum >= bytes) break;
    sum += extent->bytes;
    chosen.insert(chosen.end(), extent->objects.begin(), extent->objects.end());
  }
  return chosen;
}

// -- observe
// ---------------------------------------------------------------------------------------

Time Spiller::next_deadline() const {
  return asks_.empty() ? Time::max() : next_try_;
}

SpillerStats Spiller::stats() const {
  SpillerStats stats;
  stats.disk = files_->stats();
  stats.spilled = by_id_.size() - writing_.size();
  stats.restored = restored_;
  stats.waiting = asks_.size();
  return stats;
}

}  // namespace troupe::objectstore

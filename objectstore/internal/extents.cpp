#include "troupe/objectstore/internal/extents.hpp"

#include "troupe/objectstore/internal/segments.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace troupe::objectstore::internal {

Extents::Extents(const ExtentsOptions& options)
    : options_(options),
      extents_(options.most),
      of_(options.processes),
      pool_(options.usual, std::min(options.ahead, options.arena / 8)) {
  for (std::uint32_t e = 0; e < options.most; ++e) free_.push_back(e);
}

/// Checks that the arena has room for `bytes` more, and drops prefaulted extents if they are in the
/// way.
Result<void> Extents::make_room(std::uint64_t bytes, Limit limit) {
  const std::uint64_t arena = options_.arena;
  const std::uint64_t used = granted();
  if (bytes <= arena && used <= (limit == Limit::arena ? arena - bytes : arena)) {
    if (used + bytes + pool_.held() > arena) pool_.shed();
    return {};
  }
  std::string most;
  std::uint64_t top = 0;
  for (std::uint32_t p = 0; p < options_.processes; ++p) {
    const std::uint64_t sum = bytes_of(p);
    if (sum > top)
      top = sum, most = "; process " + std::to_string(p) + " holds most, " + std::to_string(sum);
  }
  return Error(Code::out_of_memory, "the object store cannot give " + std::to_string(bytes) +
                                        " more bytes: " + std::to_string(used) + " of " +
                                        std::to_string(arena) + " are in extents" + most +
                                        "; drop references, or start the node with a larger arena");
}

Result<ExtentGrant> Extents::grant(std::uint32_t process, std::uint64_t bytes, Limit limit) {
  const std::uint64_t usual = options_.usual;
  if (bytes > options_.arena)
    return Error(Code::out_of_memory,
                 std::to_string(bytes) + " bytes in one object are more than this node's whole " +
                     "object store has, " + std::to_string(options_.arena) +
                     ": make the object smaller, or start the node with a larger arena");
  bytes = std::max(usual, (bytes + kExtentGrain - 1) / kExtentGrain * kExtentGrain);
  std::optional<Fd> ready;
  if (bytes == usual) ready = pool_.take();
  if (auto room = make_room(bytes, limit); !room) return room.error();
  if (free_.empty())
    return Error(Code::out_of_memory, "this node's object store has " +
                                          std::to_string(options_.most) +
                                          " extents, its limit; drop references");
  if (!ready) {
    auto made = make_memory("troupe-extent", bytes);
    if (!made) return made.error();
    ready = *std::move(made);
  }
  auto memory = duplicate(ready->get());
  if (!memory) return memory.error();
  const std::uint32_t index = free_.front();
  free_.pop_front();
  Extent& extent = extents_[index];
  extent = Extent{ExtentId::make(++serial_, index), bytes, process, 0, false, *std::move(ready)};
  of_[process].insert(index);
  granted_ += bytes;
  return ExtentGrant{extent.id, bytes, *std::move(memory)};
}

Result<void> Extents::confirm(std::uint32_t process, ExtentId id) {
  Extent* extent = find(process, id);
  if (extent == nullptr)
    return Error(Code::invalid_argument, "confirm of an extent that the process was not granted");
  if (extent->sealed) return {};
  if (auto sealed = seal_memory(extent->memory.get()); !sealed) return sealed;
  extent->sealed = true;
  return {};
}

Result<ReaderExtent> Extents::for_reader(ExtentId id) const {
  if (!id || id.index() >= extents_.size() || extents_[id.index()].id != id)
    return Error(Code::object_lost, "the extent is gone");
  const Extent& extent = extents_[id.index()];
  if (!extent.sealed)
    return Error(Code::unavailable, "the extent's writer has not confirmed it yet");
  auto memory = duplicate(extent.memory.get());
  if (!memory) return memory.error();
  return ReaderExtent{id, extent.bytes, *std::move(memory)};
}

Extent Extents::drop(std::uint32_t index) {
  Extent was = std::exchange(extents_[index], Extent());
  of_[was.owner].erase(index);
  granted_ -= was.bytes;
  free_.push_back(index);
  return was;
}

bool Extents::prefault(Bytes bytes) {
  const bool room = granted() + pool_.held() + options_.usual <= options_.arena;
  return pool_.work(bytes, room);
}

std::uint64_t Extents::bytes_of(std::uint32_t process) const noexcept {
  std::uint64_t sum = 0;
  for (const std::uint32_t e : of_[process]) sum += extents_[e].bytes;
  return sum;
}

}  // namespace troupe::objectstore::internal

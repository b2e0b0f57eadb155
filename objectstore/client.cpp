#include "troupe/objectstore/client.hpp"

#include "troupe/objectstore/internal/allocator.hpp"
#include "troupe/objectstore/internal/mutex.hpp"
#include "troupe/objectstore/internal/segments.hpp"
#include "troupe/objectstore/internal/shared_memory.hpp"
#include "troupe/runtime/base/process_mark.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace troupe::objectstore {

using namespace internal;

namespace {

constexpr std::uint64_t kMaxObject = std::uint64_t{1} << 46;
constexpr std::uint64_t kPopulateStep = 2 << 20;
constexpr std::uint64_t kMaxCount = 0xffffffff;  // generations of a slot in one incarnation

// The publications of another process. The address never changes once it is set. A new incarnation
// of the process is mapped over the old one, so that a concurrent reader never finds an unmapped
// page.
struct Segment {
  std::atomic<const Publication*> base{nullptr};
  std::atomic<std::uint32_t> incarnation{0};
};

// An extent that is mapped here, of this or another process. All bits zero means none, since the
// table begins as zero pages. open() reads it without the lock, as view() explains.
struct ExtentEntry {
  std::atomic<std::uint64_t> id;
  std::atomic<std::byte*> base;
  std::atomic<std::uint64_t> bytes;
};

enum class Use : std::uint8_t { free, writing, sealed, dropping };

// A slot of this process.
struct Slot {
  std::uint64_t generation = 0;
  Allocator::BlockId block = Allocator::kNone;
  Use use = Use::free;
};

struct OwnExtent {
  ExtentId id;
  Mapping memory;
  std::uint64_t populated = 0;
};

struct Range {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

}  // namespace

struct Client::Impl {
  const ProcessMark mark;
  Layout layout;
  std::uint32_t process = 0;
  std::uint32_t incarnation = 0;
  std::uint64_t extent_bytes = 0;
  UnpinReport report;
  Mapping publications_memory, pins_memory, retirements_memory, extents_memory;
  std::unique_ptr<Segment[]> segments;

  mutable Mutex mutex;
  std::vector<Slot> slots TROUPE_GUARDED_BY(mutex);
  std::vector<std::uint32_t> free_slots TROUPE_GUARDED_BY(mutex);
  std::uint32_t live TROUPE_GUARDED_BY(mutex) = 0;
  Allocator space TROUPE_GUARDED_BY(mutex);
  std::map<std::uint32_t, OwnExtent> own TROUPE_GUARDED_BY(mutex);  // by extent index
  // Extents of other processes, by index. Address space once used for an index is kept for it, with
  // zero pages while nothing is mapped. So no view points to unmapped memory, whatever a peer does.
  std::map<std::uint32_t, Mapping> readers TROUPE_GUARDED_BY(mutex);
  std::map<std::uint32_t, Mapping> segment_maps TROUPE_GUARDED_BY(mutex);

  Publication* publications() const noexcept {
    return reinterpret_cast<Publication*>(publications_memory.data());
  }
  PinWord& pin(std::uint32_t p, std::uint32_t s) const noexcept {
    return reinterpret_cast<PinWord*>(pins_memory.data())[cell(layout, p, s)];
  }
  const RetirementWord& retirement(std::uint32_t p, std::uint32_t s) const noexcept {
    return reinterpret_cast<const RetirementWord*>(retirements_memory.data())[cell(layout, p, s)];
  }
  ExtentEntry& entry(ExtentId id) const noexcept {
    return reinterpret_cast<ExtentEntry*>(extents_memory.data())[id.index()];
  }
  ReaderMemory reader(const Location& at, const Publication* base) const noexcept {
    return {pin(at.process, at.slot), retirement(at.process, at.slot), base[at.slot]};
  }

  Result<Allocator::BlockId> take_block(std::uint64_t bytes) TROUPE_REQUIRES(mutex);
  Result<std::uint32_t> take_slot() TROUPE_REQUIRES(mutex);
  Range unpopulated(const Allocator::Block& block) TROUPE_REQUIRES(mutex);
  void free_slot(std::uint32_t slot) TROUPE_REQUIRES(mutex);
  void set_entry(ExtentId id, std::byte* base, std::uint64_t bytes) TROUPE_REQUIRES(mutex);
  void clear_entry(ExtentId id) noexcept TROUPE_REQUIRES(mutex);
  Opened view(const Location& at, const Publication& publication) noexcept;
  void after_unpin(const Location& at, bool report_it) noexcept;
  void finish_drop(std::uint32_t slot) noexcept;
};

// --- life

Client::Client(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::attach(Membership membership, UnpinReport report) {
  const Layout& layout = membership.layout;
  if (membership.process >= layout.processes || layout.slots == 0 || layout.extents == 0 ||
      layout.extents > 1 << 20 || membership.extent_bytes % Allocator::kAlignment != 0)
    return Error(Code::invalid_argument, "an object store membership that makes no sense");
  struct Table {
    Mapping Impl::* where;
    int fd;
    std::uint64_t bytes;
    Access access;
  };
  const Table tables[] = {
      {&Impl::publications_memory, membership.publications.get(), publications_bytes(layout),
       Access::write},
      {&Impl::pins_memory, membership.pins.get(), pins_bytes(layout), Access::write},
      {&Impl::retirements_memory, membership.retirements.get(), retirements_bytes(layout),
       Access::read}};
  auto impl = std::make_unique<Impl>();
  for (const Table& table : tables) {
    if (auto size = check_size(table.fd, table.bytes, "object store table"); !size)
      return size.error();
    auto mapped = map_memory(table.fd, table.bytes, table.access);
    if (!mapped) return mapped.error();
    (*impl).*table.where = *std::move(mapped);
  }
  auto extents = map_zeroes(std::uint64_t{layout.extents} * sizeof(ExtentEntry));
  if (!extents) return extents.error();
  impl->extents_memory = *std::move(extents);
  impl->layout = layout;
  impl->process = membership.process;
  impl->incarnation = membership.incarnation;
  impl->extent_bytes = membership.extent_bytes;
  impl->report = std::move(report);
  impl->segments = std::make_unique<Segment[]>(layout.processes);
  Segment& self = impl->segments[impl->process];
  self.base = impl->publications();
  self.incarnation = impl->incarnation;
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

std::uint32_t Client::process() const noexcept {
  return impl_->process;
}

// --- write

Result<std::uint32_t> Client::Impl::take_slot() {
  if (!free_slots.empty()) {
    const std::uint32_t slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  }
  if (slots.size() == layout.slots)
    return Error(Code::out_of_memory, "this process holds " + std::to_string(live) +
                                          " objects of at most " + std::to_string(layout.slots) +
                                          "; drop references or put fewer, larger objects");
  slots.emplace_back();
  slots.back().generation = std::uint64_t{incarnation} << 32;
  return static_cast<std::uint32_t>(slots.size() - 1);
}

// Frees the slot and its memory. A slot whose generations are used up is never reused (OS-7).
void Client::Impl::free_slot(std::uint32_t index) {
  Slot& slot = slots[index];
  space.free(slot.block);
  slot.use = Use::free;
  --live;
  if ((slot.generation & kMaxCount) != kMaxCount) free_slots.push_back(index);
}

// Returns the memory to populate for a block, and counts it as populated. Pages before `populated`
// have been mapped. It takes a whole step beyond the block, so that the system call is rare.
Range Client::Impl::unpopulated(const Allocator::Block& block) {
  OwnExtent& extent = own.find(block.extent)->second;
  const std::uint64_t end = block.offset + block.bytes;
  if (end <= extent.populated) return {};
  const std::uint64_t from = extent.populated;
  extent.populated = std::min(extent.memory.bytes(), std::max(end, from + kPopulateStep));
  extent.populated =
      std::min(extent.memory.bytes(), (extent.populated + 4095) & ~std::uint64_t{4095});
  return {extent.memory.data() + from, extent.populated - from};
}

Result<Client::Created> Client::create(std::uint64_t bytes, bool touch) {
  if (bytes > kMaxObject)
    return Error(Code::invalid_argument,
                 "an object of " + std::to_string(bytes) + " bytes is larger than 64 TiB");
  Allocation made;
  Range fresh;
  {
    Impl& impl = *impl_;
    Lock lock(impl.mutex);
    const Allocator::BlockId block = impl.space.allocate(std::max<std::uint64_t>(bytes, 1));
    if (block == Allocator::kNone) {
      const std::uint64_t grains = (bytes + kExtentGrain - 1) / kExtentGrain;
      return Created(ExtentRequest{std::max(impl.extent_bytes, grains * kExtentGrain)});
    }
    Result<std::uint32_t> index = impl.take_slot();
    if (!index) {
      impl.space.free(block);
      return index.error();
    }
    Slot& slot = impl.slots[*index];
    ++slot.generation;
    slot.block = block;
    slot.use = Use::writing;
    ++impl.live;
    const Allocator::Block& place = impl.space.at(block);
    made.client_ = this;
    made.slot_ = *index;
    made.bytes_ = {impl.own.find(place.extent)->second.memory.data() + place.offset, bytes};
    fresh = impl.unpopulated(place);
  }
  if (touch && fresh.bytes != 0) populate(fresh.data, fresh.bytes);
  return Created(std::move(made));
}

// Changes an entry like a sequence lock: the id is 0 while base and bytes change.
void Client::Impl::set_entry(ExtentId id, std::byte* base, std::uint64_t bytes) {
  ExtentEntry& e = entry(id);
  e.id.store(0, std::memory_order_seq_cst);
  e.base.store(base, std::memory_order_seq_cst);
  e.bytes.store(bytes, std::memory_order_seq_cst);
  e.id.store(id.value, std::memory_order_seq_cst);
}

void Client::Impl::clear_entry(ExtentId id) noexcept {
  entry(id).id.store(0, std::memory_order_seq_cst);
}

Result<void> Client::add_extent(ExtentGrant grant) {
  Impl& impl = *impl_;
  if (!grant.id || grant.id.index() >= impl.layout.extents || grant.bytes == 0 ||
      grant.bytes % Allocator::kAlignment != 0)
    return Error(Code::invalid_argument, "an extent with an impossible id or size");
  if (auto size = check_size(grant.memory.get(), grant.bytes, "extent"); !size) return size;
  auto memory = map_memory(grant.memory.get(), grant.bytes, Access::write);
  if (!memory) return memory.error();
  ask_for_large_pages(*memory);
  Lock lock(impl.mutex);
  OwnExtent extent;
  extent.id = grant.id;
  extent.memory = *std::move(memory);
  std::byte* data = extent.memory.data();
  if (!impl.own.emplace(grant.id.index(), std::move(extent)).second)
    return Error(Code::invalid_argument, "an extent was granted twice");
  impl.space.add_extent(grant.id.index(), grant.bytes);
  impl.set_entry(grant.id, data, grant.bytes);
  return {};
}

Location Client::seal(Allocation allocation, std::uint32_t tag) noexcept {
  const std::uint64_t length = allocation.bytes().size();
  return seal(std::move(allocation), tag, length);
}

Location Client::seal(Allocation allocation, std::uint32_t tag, std::uint64_t length) noexcept {
  TROUPE_ASSERT(allocation.client_ == this, "an allocation is sealed by the client that made it");
  TROUPE_ASSERT(length <= allocation.bytes_.size(), "an object is at most as long as its memory");
  Impl& impl = *impl_;
  Location at;
  at.process = impl.process;
  at.slot = allocation.slot_;
  at.length = length;
  at.tag = tag;
  {
    Lock lock(impl.mutex);
    Slot& slot = impl.slots[at.slot];
    const Allocator::Block& place = impl.space.at(slot.block);
    slot.use = Use::sealed;
    at.generation = slot.generation;
    at.offset = place.offset;
    at.extent = impl.own.find(place.extent)->second.id;
  }
  WriterMemory memory{impl.publications()[at.slot]};
  PinProtocol<WriterMemory>::publish(memory, at.generation, at);
  allocation.client_ = nullptr;
  return at;
}

void Client::abort(std::uint32_t slot) noexcept {
  if (impl_->mark.in_fork()) return;  // in a forked child: the memory belongs to the parent
  Lock lock(impl_->mutex);
  impl_->free_slot(slot);
}

Result<void> Client::recycle(std::uint32_t slot, std::uint64_t generation) {
  Impl& impl = *impl_;
  Lock lock(impl.mutex);
  if (slot >= impl.slots.size() || impl.slots[slot].use != Use::sealed ||
      impl.slots[slot].generation != generation)
    return Error(Code::invalid_argument, "recycle of an object that is not sealed here");
  impl.free_slot(slot);
  return {};
}

// Frees an object that only this process knows. The pin protocol holds here too, with the head in
// the place of the retirement: first the head becomes `dropped`, then this process's own pins are
// read. A reader of this process pins first and reads the head after that. If it still has a pin,
// its unpin sees `dropped` and calls finish_drop().
Result<bool> Client::drop(const Location& at) {
  Impl& impl = *impl_;
  Lock lock(impl.mutex);
  if (at.process != impl.process || at.slot >= impl.slots.size() ||
      impl.slots[at.slot].use != Use::sealed || impl.slots[at.slot].generation != at.generation)
    return Error(Code::invalid_argument, "drop of an object that is not sealed here");
  WriterMemory{impl.publications()[at.slot]}.set_head(head_word(at.generation, SlotState::dropped));
  impl.slots[at.slot].use = Use::dropping;
  if (impl.pin(impl.process, at.slot).load(std::memory_order_seq_cst) != 0) return false;
  impl.free_slot(at.slot);
  return true;
}

void Client::Impl::finish_drop(std::uint32_t index) noexcept {
  Lock lock(mutex);
  if (index < slots.size() && slots[index].use == Use::dropping &&
      pin(process, index).load(std::memory_order_seq_cst) == 0)
    free_slot(index);
}

std::vector<ExtentId> Client::trim(Bytes keep) {
  Impl& impl = *impl_;
  std::vector<ExtentId> gone;
  Lock lock(impl.mutex);
  for (const Allocator::BlockId block : impl.space.whole_extents()) {
    const Allocator::Block place = impl.space.at(block);
    if (impl.space.totals().capacity - place.bytes < keep.count) continue;
    const auto extent = impl.own.find(place.extent);
    impl.clear_entry(extent->second.id);
    gone.push_back(extent->second.id);
    impl.space.remove_extent(block);
    impl.own.erase(extent);
  }
  return gone;
}

// --- read

Opened Client::open(const Location& at) noexcept {
  Impl& impl = *impl_;
  Opened opened;
  if (at.process >= impl.layout.processes || at.slot >= impl.layout.slots || at.generation == 0)
    return opened;
  const Segment& segment = impl.segments[at.process];
  const Publication* base = segment.base.load(std::memory_order_acquire);
  if (base == nullptr || segment.incarnation.load(std::memory_order_acquire) < at.incarnation()) {
    opened.status = at.process == impl.process ? OpenStatus::moved : OpenStatus::needs_segment;
    return opened;
  }
  ReaderMemory memory = impl.reader(at, base);
  const Pin pin = PinProtocol<ReaderMemory>::pin(memory, at.generation);
  if (pin != Pin::held) {
    impl.after_unpin(at, pin == Pin::missed_and_report);
    opened.status = OpenStatus::moved;
    return opened;
  }
  opened = impl.view(at, base[at.slot]);
  if (opened.status == OpenStatus::pinned) {
    opened.pinned.client_ = this;
    opened.pinned.at_ = at;
  } else {
    unpin(at);
  }
  return opened;
}

// Returns the view of a pinned object. While the pin holds, an honest writer changes neither its
// publication nor the extent. A dishonest writer may, so each field is read once and checked
// (OS-8).
//
// The entry is read like a sequence lock: id, base and bytes, id again. If base or bytes came from
// a concurrent set_entry(), the second read of the id sees its 0 or a later id, and the view is
// refused.
Opened Client::Impl::view(const Location& at, const Publication& publication) noexcept {
  Opened opened;
  const ExtentId extent{publication.extent.load(std::memory_order_relaxed)};
  const std::uint64_t offset = publication.offset.load(std::memory_order_relaxed);
  const std::uint64_t length = publication.length.load(std::memory_order_relaxed);
  const std::uint32_t tag = publication.tag.load(std::memory_order_relaxed);
  if (extent != at.extent || offset != at.offset || length != at.length || tag != at.tag ||
      !extent || extent.index() >= layout.extents)
    return opened;
  const ExtentEntry& e = entry(extent);
  if (e.id.load(std::memory_order_acquire) != extent.value) {
    opened.status = OpenStatus::needs_extent;
    return opened;
  }
  const std::byte* base = e.base.load(std::memory_order_acquire);
  const std::uint64_t bytes = e.bytes.load(std::memory_order_acquire);
  if (e.id.load(std::memory_order_acquire) != extent.value || offset > bytes ||
      length > bytes - offset)
    return opened;
  opened.status = OpenStatus::pinned;
  opened.pinned.bytes_ = {base + offset, static_cast<std::size_t>(length)};
  return opened;
}

void Client::unpin(const Location& at) noexcept {
  if (impl_->mark.in_fork()) return;  // in a forked child: the view belongs to the parent
  const Publication* base = impl_->segments[at.process].base.load(std::memory_order_acquire);
  ReaderMemory memory = impl_->reader(at, base);
  impl_->after_unpin(at, PinProtocol<ReaderMemory>::unpin(memory, at.generation));
}

// Follows every removal of a pin: reports to the agent, and ends a drop() that waited for this pin.
void Client::Impl::after_unpin(const Location& at, bool report_it) noexcept {
  if (report_it && report) report(at.process, at.slot);
  if (at.process != process) return;
  const std::uint64_t head = publications()[at.slot].head.load(std::memory_order_seq_cst);
  if ((head & 0xff) == static_cast<std::uint64_t>(SlotState::dropped)) finish_drop(at.slot);
}

Result<void> Client::add_segment(ReaderSegment segment) {
  Impl& impl = *impl_;
  if (segment.process >= impl.layout.processes || segment.process == impl.process)
    return Error(Code::invalid_argument, "a segment of an impossible process");
  const std::uint64_t bytes = publications_bytes(impl.layout);
  if (auto good = check_sealed(segment.memory.get(), bytes, "publications"); !good) return good;
  Lock lock(impl.mutex);
  Segment& known = impl.segments[segment.process];
  // Another thread may have added it meanwhile.
  if (known.base != nullptr && known.incarnation >= segment.incarnation) return {};
  const auto old = impl.segment_maps.find(segment.process);
  void* at = old != impl.segment_maps.end() ? old->second.data() : nullptr;
  auto memory = map_memory(segment.memory.get(), bytes, Access::read, at);
  if (!memory) return memory.error();
  if (at == nullptr) {
    known.base = reinterpret_cast<const Publication*>(memory->data());
    impl.segment_maps.emplace(segment.process, *std::move(memory));
  } else {
    memory->release();  // segment_maps owns the address space already
  }
  // Last: open() uses the table once it sees this incarnation.
  known.incarnation = segment.incarnation;
  return {};
}

Result<void> Client::add_reader_extent(ReaderExtent extent) {
  Impl& impl = *impl_;
  if (!extent.id || extent.id.index() >= impl.layout.extents || extent.bytes == 0)
    return Error(Code::invalid_argument, "an extent with an impossible id or size");
  if (auto good = check_sealed(extent.memory.get(), extent.bytes, "extent"); !good) return good;
  Lock lock(impl.mutex);
  // Another thread may have added it meanwhile.
  if (impl.entry(extent.id).id.load() == extent.id.value) return {};
  if (impl.own.count(extent.id.index()) != 0)
    return Error(Code::invalid_argument, "an extent that is our own");
  Mapping& place = impl.readers[extent.id.index()];
  impl.clear_entry(extent.id);
  void* at = extent.bytes <= place.bytes() ? place.data() : nullptr;
  auto memory = map_memory(extent.memory.get(), extent.bytes, Access::read, at);
  if (!memory) return memory.error();
  ask_for_large_pages(*memory);
  std::byte* data = memory->data();
  if (at == nullptr) {
    // The old mapping stays for ever: a view of an extent that a dishonest writer gave back too
    // early may still point there.
    place.release();
    place = *std::move(memory);
  } else {
    memory->release();  // `place` owns the address space already
  }
  impl.set_entry(extent.id, data, extent.bytes);
  return {};
}

void Client::forget_extent(ExtentId extent) noexcept {
  Impl& impl = *impl_;
  if (extent.index() >= impl.layout.extents) return;
  Lock lock(impl.mutex);
  if (impl.entry(extent).id.load() != extent.value) return;
  const auto found = impl.readers.find(extent.index());
  if (found == impl.readers.end()) return;
  impl.clear_entry(extent);
  forget_in_place(found->second);
}

void Client::forget_segment(std::uint32_t process) noexcept {
  Impl& impl = *impl_;
  Lock lock(impl.mutex);
  const auto found = impl.segment_maps.find(process);
  if (found != impl.segment_maps.end()) forget_in_place(found->second);
}

ClientStats Client::stats() const {
  const Impl& impl = *impl_;
  Lock lock(impl.mutex);
  ClientStats stats;
  stats.capacity = impl.space.totals().capacity;
  stats.used = impl.space.totals().used;
  stats.largest_free = impl.space.largest_free();
  stats.extents = static_cast<std::uint32_t>(impl.own.size());
  stats.objects = impl.live;
  stats.holes = impl.space.totals().free_blocks;
  for (const auto& [index, memory] : impl.readers) {
    const ExtentEntry& e = impl.entry(ExtentId::make(0, index));
    if (e.id.load() == 0 || impl.own.count(index) != 0) continue;
    ++stats.reader_extents;
    stats.reader_bytes += e.bytes.load();
  }
  return stats;
}

// --- handles

Allocation::Allocation(Allocation&& other) noexcept
    : client_(std::exchange(other.client_, nullptr)),
      slot_(other.slot_),
      bytes_(std::exchange(other.bytes_, {})) {}
Allocation& Allocation::operator=(Allocation&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(slot_, other.slot_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Allocation::~Allocation() {
  if (client_ != nullptr) client_->abort(slot_);
}

Pinned::Pinned(Pinned&& other) noexcept
    : client_(std::exchange(other.client_, nullptr)),
      at_(other.at_),
      bytes_(std::exchange(other.bytes_, {})) {}
Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Pinned::~Pinned() {
  if (client_ != nullptr) client_->unpin(at_);
}
// Needs no protocol: this view's pin holds while the count grows.
Pinned Pinned::clone() const noexcept {
  client_->impl_->pin(at_.process, at_.slot).fetch_add(1, std::memory_order_seq_cst);
  Pinned copy;
  copy.client_ = client_;
  copy.at_ = at_;
  copy.bytes_ = bytes_;
  return copy;
}

}  // namespace troupe::objectstore

#include "troupe/objectstore/host.hpp"

#include "troupe/objectstore/internal/extents.hpp"
#include "troupe/objectstore/internal/mutex.hpp"
#include "troupe/objectstore/internal/segments.hpp"
#include "troupe/objectstore/internal/shared_memory.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <string>

namespace troupe::objectstore {

using namespace internal;

namespace {

// A head word has 56 bits for a generation: 24 for the incarnation and 32 for the count.
constexpr std::uint32_t kMaxIncarnation = 0xffffff;

enum class Life : std::uint8_t { none, adopted, retired };

// The agent's record of a slot of a process.
struct Object {
  std::uint64_t generation = 0;
  std::uint64_t length = 0;
  std::uint32_t extent = 0;  // index
  Life life = Life::none;
};

enum class Presence : std::uint8_t { unused, registered, confirmed, dead };

struct Process {
  Presence presence = Presence::unused;
  std::uint32_t incarnation = 0;
  Fd publications_fd, pins_fd;
  Mapping publications, pins;
  std::vector<Object> objects;  // by slot, as far as used
  std::uint32_t alive = 0;      // objects adopted or retired but waiting
  std::uint32_t adopted = 0;
  std::uint64_t bytes = 0;  // adopted
};

Error bad(const char* what) {
  return Error(Code::invalid_argument, what);
}

ExtentsOptions extents_of(const HostOptions& options) {
  return {.usual = options.extent.count,
          .arena = options.arena.count,
          .ahead = options.ahead.count,
          .processes = options.layout.processes,
          .most = options.layout.extents};
}

}  // namespace

struct Host::Impl {
  HostOptions options;
  Fd retirements_fd;
  Mapping retirements;
  std::vector<Process> processes;
  std::vector<const PinWord*> pin_tables;  // of the living
  std::deque<std::uint32_t> free_processes;
  Extents extents;
  std::set<std::pair<std::uint32_t, std::uint32_t>> waiting;  // (process, slot)
  std::vector<Notice> notices;
  std::unique_ptr<Client> local;
  Mutex mutex;  // views of the agent's own client may end on other threads
  std::vector<std::pair<std::uint32_t, std::uint32_t>> local_unpins TROUPE_GUARDED_BY(mutex);

  explicit Impl(HostOptions given) : options(std::move(given)), extents(extents_of(options)) {}
  Result<void> start();
  Result<void> make_tables(Process& p);
  void rebuild_pin_tables();
  bool known(std::uint32_t process) const noexcept;
  bool present(std::uint32_t process) const noexcept;
  RetirementWord& retirement(std::uint32_t p, std::uint32_t s) noexcept;
  const Publication& publication(std::uint32_t p, std::uint32_t s) const noexcept;
  AgentMemory memory(std::uint32_t p, std::uint32_t s) noexcept {
    return {retirement(p, s), pin_tables, cell(options.layout, p, s)};
  }
  Object* object(const Location& at) noexcept;
  bool published(const Location& at) const noexcept;
  Result<ExtentGrant> grant(std::uint32_t process, std::uint64_t bytes, Limit limit);
  Result<Allocation> create_local(std::uint64_t bytes, bool touch, Limit limit);
  bool retire(std::uint32_t p, std::uint32_t s, Object& object);
  void finish(std::uint32_t p, std::uint32_t s);
  void look_again(std::uint32_t p, std::uint32_t s);
  void free_unadopted(std::uint32_t p);
  void free_unadopted_range(std::uint32_t p, std::uint32_t first, std::uint32_t last);
  void drop_extent(std::uint32_t index);
  void free_if_empty(std::uint32_t p);
  void notify(Notice notice);
  void drain_local_unpins();
};

// --- life

Host::Host(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Host::~Host() = default;

Result<std::unique_ptr<Host>> Host::create(HostOptions options) {
  const Layout layout = options.layout;
  if (options.arena.count == 0) options.arena = default_arena_bytes();
  if (options.extent.count == 0 || options.extent.count % kExtentGrain != 0 ||
      layout.processes < 2 || layout.slots == 0 || layout.extents == 0 || layout.extents > 1 << 20)
    return bad("object store options that make no sense: extents are multiples of 64 KiB");
  auto impl = std::make_unique<Impl>(std::move(options));
  if (auto started = impl->start(); !started) return started.error();
  auto host = std::unique_ptr<Host>(new Host(std::move(impl)));
  auto membership = host->register_process();  // index 0: the agent's own
  if (!membership) return membership.error();
  Impl* self = host->impl_.get();
  auto local = Client::attach(*std::move(membership), [self](std::uint32_t p, std::uint32_t s) {
    {
      Lock lock(self->mutex);
      self->local_unpins.emplace_back(p, s);
    }
    if (self->options.on_local_unpin) self->options.on_local_unpin();
  });
  if (!local) return local.error();
  self->local = *std::move(local);
  if (auto confirmed = host->confirm_process(0); !confirmed) return confirmed.error();
  return host;
}

Result<void> Host::Impl::start() {
  const Layout& layout = options.layout;
  const std::uint64_t bytes = retirements_bytes(layout);
  auto fd = make_memory("troupe-retirements", bytes);
  if (!fd) return fd.error();
  auto mapped = map_memory(fd->get(), bytes, Access::write);
  if (!mapped) return mapped.error();
  if (auto sealed = seal_memory(fd->get()); !sealed) return sealed;
  retirements_fd = *std::move(fd);
  retirements = *std::move(mapped);
  processes.resize(layout.processes);
  for (std::uint32_t p = 0; p < layout.processes; ++p) free_processes.push_back(p);
  return {};
}

bool Host::Impl::known(std::uint32_t process) const noexcept {
  return process < processes.size() && processes[process].presence != Presence::unused;
}
bool Host::Impl::present(std::uint32_t process) const noexcept {
  return process < processes.size() && (processes[process].presence == Presence::registered ||
                                        processes[process].presence == Presence::confirmed);
}
RetirementWord& Host::Impl::retirement(std::uint32_t p, std::uint32_t s) noexcept {
  return reinterpret_cast<RetirementWord*>(retirements.data())[cell(options.layout, p, s)];
}
const Publication& Host::Impl::publication(std::uint32_t p, std::uint32_t s) const noexcept {
  return reinterpret_cast<const Publication*>(processes[p].publications.data())[s];
}

// --- processes

Result<void> Host::Impl::make_tables(Process& p) {
  const std::uint64_t publications_size = publications_bytes(options.layout);
  const std::uint64_t pins_size = pins_bytes(options.layout);
  auto publications = make_memory("troupe-publications", publications_size);
  if (!publications) return publications.error();
  auto pins = make_memory("troupe-pins", pins_size);
  if (!pins) return pins.error();
  auto publications_map = map_memory(publications->get(), publications_size, Access::read);
  if (!publications_map) return publications_map.error();
  auto pins_map = map_memory(pins->get(), pins_size, Access::read);
  if (!pins_map) return pins_map.error();
  p.publications_fd = *std::move(publications);
  p.pins_fd = *std::move(pins);
  p.publications = *std::move(publications_map);
  p.pins = *std::move(pins_map);
  return {};
}

Result<Membership> Host::register_process() {
  Impl& impl = *impl_;
  if (impl.free_processes.empty())
    return Error(Code::overloaded, "this node's object store already serves " +
                                       std::to_string(impl.options.layout.processes) +
                                       " processes; end some or start fewer");
  const std::uint32_t index = impl.free_processes.front();
  Process& p = impl.processes[index];
  if (auto made = impl.make_tables(p); !made) return made.error();
  auto publications = duplicate(p.publications_fd.get());
  if (!publications) return publications.error();
  auto pins = duplicate(p.pins_fd.get());
  if (!pins) return pins.error();
  auto retirements = duplicate(impl.retirements_fd.get());
  if (!retirements) return retirements.error();
  impl.free_processes.pop_front();
  ++p.incarnation;  // all generations of the index's former process are lower (OS-7)
  p.presence = Presence::registered;
  impl.rebuild_pin_tables();
  Membership membership;
  membership.layout = impl.options.layout;
  membership.process = index;
  membership.incarnation = p.incarnation;
  membership.extent_bytes = impl.options.extent.count;
  membership.publications = *std::move(publications);
  membership.pins = *std::move(pins);
  membership.retirements = *std::move(retirements);
  return membership;
}

Result<void> Host::confirm_process(std::uint32_t process) {
  Impl& impl = *impl_;
  if (!impl.present(process)) return bad("confirm of a process that is not registered");
  Process& p = impl.processes[process];
  if (p.presence == Presence::confirmed) return {};
  for (const int fd : {p.publications_fd.get(), p.pins_fd.get()})
    if (auto sealed = seal_memory(fd); !sealed) return sealed;
  p.presence = Presence::confirmed;
  p.pins_fd.reset();  // the agent has it mapped, and no other process may get it
  return {};
}

void Host::Impl::rebuild_pin_tables() {
  pin_tables.clear();
  for (std::uint32_t p = 0; p < processes.size(); ++p)
    if (present(p))
      pin_tables.push_back(reinterpret_cast<const PinWord*>(processes[p].pins.data()));
}

void Host::process_died(std::uint32_t process) {
  Impl& impl = *impl_;
  if (!impl.present(process) || process == 0) return;
  Process& p = impl.processes[process];
  // Tables that are not sealed yet may be shrunk by another process, so they are not read.
  const bool attached = p.presence == Presence::confirmed;
  p.presence = Presence::dead;
  p.pins = Mapping();
  p.pins_fd.reset();
  impl.rebuild_pin_tables();
  ++p.alive;  // keeps free_if_empty() from freeing the tables while they are walked
  if (attached) impl.free_unadopted(process);
  const std::set<std::uint32_t> extents = impl.extents.of(process);
  for (const std::uint32_t e : extents)
    if (impl.extents.at(e).objects == 0) impl.drop_extent(e);
  poll();
  --p.alive;
  impl.free_if_empty(process);
}

// Retires the sealed objects of a dead process that were not adopted; readers may still have views
// of them. It walks only the pages of the table that exist: a read of a hole would allocate the
// page.
void Host::Impl::free_unadopted(std::uint32_t p) {
  const int fd = processes[p].publications_fd.get();
  const auto end = static_cast<off_t>(publications_bytes(options.layout));
  off_t at = 0;
  while (at < end) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0) return;
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    const off_t stop = hole < 0 ? end : std::min(hole, end);
    free_unadopted_range(p, static_cast<std::uint32_t>(data / sizeof(Publication)),
                         static_cast<std::uint32_t>(stop / sizeof(Publication)));
    at = std::max(stop, data + 1);
  }
}

void Host::Impl::free_unadopted_range(std::uint32_t p, std::uint32_t first, std::uint32_t last) {
  Process& process = processes[p];
  for (std::uint32_t s = first; s < last; ++s) {
    const std::uint64_t head = publication(p, s).head.load(std::memory_order_seq_cst);
    const std::uint64_t generation = head >> 8;
    if ((head & 0xff) != static_cast<std::uint64_t>(SlotState::sealed) ||
        generation >> 32 != process.incarnation)
      continue;
    if (s < process.objects.size() && process.objects[s].life != Life::none) continue;
    const ExtentId id{publication(p, s).extent.load(std::memory_order_relaxed)};
    if (extents.find(p, id) == nullptr) continue;
    if (s >= process.objects.size()) process.objects.resize(s + 1);
    Object& object = process.objects[s];
    object = Object{generation, 0, id.index(), Life::retired};
    ++process.alive;
    ++extents.at(id.index()).objects;
    retire(p, s, object);
  }
}

// Frees the index and the tables of a dead process when its last object is gone. An index whose
// incarnations are used up is never reused.
void Host::Impl::free_if_empty(std::uint32_t p) {
  Process& process = processes[p];
  if (process.presence != Presence::dead || process.alive != 0) return;
  const std::uint32_t incarnation = process.incarnation;
  process = Process();
  process.incarnation = incarnation;
  if (incarnation < kMaxIncarnation) free_processes.push_back(p);
  Notice notice;
  notice.kind = Notice::Kind::forget_segment;
  notice.process = p;
  notify(notice);
}

// --- memory

Result<ExtentGrant> Host::grant(std::uint32_t process, std::uint64_t bytes) {
  return impl_->grant(process, bytes, Limit::arena);
}

Result<ExtentGrant> Host::Impl::grant(std::uint32_t process, std::uint64_t bytes, Limit limit) {
  if (!present(process)) return bad("grant to a process that is not registered");
  return extents.grant(process, bytes, limit);
}

Result<void> Host::confirm_extent(std::uint32_t process, ExtentId id) {
  return impl_->extents.confirm(process, id);
}

Result<void> Host::release_extent(std::uint32_t process, ExtentId id) {
  const Extent* extent = impl_->extents.find(process, id);
  if (extent == nullptr) return bad("release of an extent that the process was not granted");
  if (extent->objects != 0) return bad("release of an extent in which objects live");
  impl_->drop_extent(id.index());
  return {};
}

void Host::Impl::drop_extent(std::uint32_t index) {
  const Extent was = extents.drop(index);
  Notice notice;
  notice.kind = Notice::Kind::forget_extent;
  notice.process = was.owner;
  notice.extent = was.id;
  notify(notice);
}

Result<ReaderExtent> Host::extent_for_reader(ExtentId id) const {
  return impl_->extents.for_reader(id);
}

Result<ReaderSegment> Host::segment_for_reader(std::uint32_t process) const {
  if (!impl_->known(process)) return Error(Code::object_lost, "the object's process is gone");
  const Process& p = impl_->processes[process];
  if (p.presence == Presence::registered)
    return Error(Code::unavailable, "the object's process has not confirmed its tables yet");
  auto memory = duplicate(p.publications_fd.get());
  if (!memory) return memory.error();
  return ReaderSegment{process, p.incarnation, *std::move(memory)};
}

bool Host::prefault(Bytes bytes) {
  return impl_->extents.prefault(bytes);
}

// --- objects

bool Host::Impl::published(const Location& at) const noexcept {
  const Publication& p = publication(at.process, at.slot);
  return p.head.load(std::memory_order_seq_cst) == head_word(at.generation, SlotState::sealed) &&
         p.extent.load(std::memory_order_relaxed) == at.extent.value &&
         p.offset.load(std::memory_order_relaxed) == at.offset &&
         p.length.load(std::memory_order_relaxed) == at.length &&
         p.tag.load(std::memory_order_relaxed) == at.tag;
}

Result<void> Host::adopt(std::uint32_t sender, const Location& at) {
  Impl& impl = *impl_;
  if (!impl.present(sender) || at.process != sender || at.slot >= impl.options.layout.slots)
    return bad("adopt of an object that is not the sender's");
  Process& p = impl.processes[sender];
  Extent* extent = impl.extents.find(sender, at.extent);
  if (extent == nullptr || at.offset > extent->bytes || at.length > extent->bytes - at.offset)
    return bad("adopt of an object outside the sender's extents");
  if (at.incarnation() != p.incarnation || !impl.published(at) ||
      impl.retirement(at.process, at.slot).load(std::memory_order_seq_cst) >= at.generation)
    return bad("adopt of an object that is not published so");
  if (at.slot >= p.objects.size())
    p.objects.resize(std::min<std::size_t>(
        impl.options.layout.slots, std::max<std::size_t>(at.slot + 1, 2 * p.objects.size())));
  Object& object = p.objects[at.slot];
  if (object.life != Life::none) return bad("adopt of an object that was adopted before");
  object = Object{at.generation, at.length, at.extent.index(), Life::adopted};
  ++p.alive;
  ++p.adopted;
  p.bytes += at.length;
  ++extent->objects;
  return {};
}

Object* Host::Impl::object(const Location& at) noexcept {
  if (!known(at.process) || at.slot >= processes[at.process].objects.size()) return nullptr;
  Object& object = processes[at.process].objects[at.slot];
  return object.life != Life::none && object.generation == at.generation ? &object : nullptr;
}

Result<Freed> Host::free(const Location& at) {
  Impl& impl = *impl_;
  Object* object = impl.object(at);
  if (object == nullptr || object->life != Life::adopted)
    return bad("free of an object that is not adopted, or was freed before");
  Process& p = impl.processes[at.process];
  --p.adopted;
  p.bytes -= object->length;
  object->life = Life::retired;
  return impl.retire(at.process, at.slot, *object) ? Freed::done : Freed::waits;
}

bool Host::is_pinned(const Location& at) const noexcept {
  if (impl_->object(at) == nullptr) return false;
  AgentMemory slot = impl_->memory(at.process, at.slot);
  return !PinProtocol<AgentMemory>::is_clear(slot);
}

std::uint32_t Host::pins(const Location& at) const noexcept {
  if (impl_->object(at) == nullptr) return 0;
  const AgentMemory slot = impl_->memory(at.process, at.slot);
  std::uint32_t sum = 0;
  for (std::uint32_t p = 0; p < slot.processes(); ++p) sum += slot.pins_of(p);
  return sum;
}

// Ends a generation. Returns true if it is freed at once, false if a pin holds it; then it is in
// `waiting`.
bool Host::Impl::retire(std::uint32_t p, std::uint32_t s, Object& object) {
  AgentMemory slot = memory(p, s);
  PinProtocol<AgentMemory>::retire(slot, object.generation);
  if (PinProtocol<AgentMemory>::is_clear(slot)) {
    finish(p, s);
    return true;
  }
  waiting.emplace(p, s);
  return false;
}

// Frees a slot whose object is retired and has no pin. A living writer gets a notice to recycle the
// memory.
void Host::Impl::finish(std::uint32_t p, std::uint32_t s) {
  Process& process = processes[p];
  Object& object = process.objects[s];
  const Object was = object;
  object = Object();
  --process.alive;
  --extents.at(was.extent).objects;
  if (process.presence == Presence::dead) {
    if (extents.at(was.extent).objects == 0) drop_extent(was.extent);
    free_if_empty(p);
    return;
  }
  Notice notice;
  notice.process = p;
  notice.slot = s;
  notice.generation = was.generation;
  notify(notice);
}

void Host::Impl::look_again(std::uint32_t p, std::uint32_t s) {
  const auto found = waiting.find({p, s});
  if (found == waiting.end()) return;
  AgentMemory slot = memory(p, s);
  if (!PinProtocol<AgentMemory>::is_clear(slot)) return;
  waiting.erase(found);
  finish(p, s);
}

void Host::unpinned(std::uint32_t process, std::uint32_t slot) {
  impl_->look_again(process, slot);
}

void Host::poll() {
  impl_->drain_local_unpins();
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> all(impl_->waiting.begin(),
                                                                 impl_->waiting.end());
  for (const auto& [process, slot] : all) impl_->look_again(process, slot);
}

void Host::Impl::drain_local_unpins() {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unpins;
  {
    Lock lock(mutex);
    unpins.swap(local_unpins);
  }
  for (const auto& [process, slot] : unpins) look_again(process, slot);
}

// Queues a notice for other processes, and applies it to the agent's own client at once.
void Host::Impl::notify(Notice notice) {
  switch (notice.kind) {
    case Notice::Kind::recycle:
      if (notice.process != 0) break;
      TROUPE_ASSERT(local->recycle(notice.slot, notice.generation), "the agent knows its objects");
      return;
    case Notice::Kind::forget_extent: local->forget_extent(notice.extent); break;
    case Notice::Kind::forget_segment: local->forget_segment(notice.process); break;
  }
  notices.push_back(notice);
}

std::vector<Notice> Host::take_notices() {
  impl_->drain_local_unpins();
  return std::exchange(impl_->notices, {});
}

// --- the agent's own

Client& Host::local() noexcept {
  return *impl_->local;
}

Result<Allocation> Host::create_local(std::uint64_t bytes, bool touch) {
  return impl_->create_local(bytes, touch, Limit::arena);
}

Result<Allocation> Host::lend_local(std::uint64_t bytes) {
  return impl_->create_local(bytes, false, Limit::one_beyond);
}

bool Host::exceeds_arena() const noexcept {
  return impl_->extents.exceed_arena();
}

Result<Allocation> Host::Impl::create_local(std::uint64_t bytes, bool touch, Limit limit) {
  for (int tries = 0; tries < 2; ++tries) {
    auto created = local->create(bytes, touch);
    if (!created) return created.error();
    if (auto* made = std::get_if<Allocation>(&*created)) return std::move(*made);
    auto extent = grant(0, std::get<ExtentRequest>(*created).bytes, limit);
    if (!extent) return extent.error();
    const ExtentId id = extent->id;
    if (auto added = local->add_extent(*std::move(extent)); !added) {
      drop_extent(id.index());
      return added.error();
    }
    if (auto confirmed = extents.confirm(0, id); !confirmed) return confirmed.error();
  }
  return Error(Code::internal, "a fresh extent did not hold the object that it was made for");
}

Result<Pinned> Host::open_local(const Location& at) {
  for (int tries = 0; tries < 3; ++tries) {
    Opened opened = impl_->local->open(at);
    Result<void> added;
    switch (opened.status) {
      case OpenStatus::pinned: return std::move(opened.pinned);
      case OpenStatus::needs_segment: {
        auto segment = segment_for_reader(at.process);
        if (!segment) return segment.error();
        if (segment->incarnation < at.incarnation()) return bad("a location of no process");
        added = impl_->local->add_segment(*std::move(segment));
        break;
      }
      case OpenStatus::needs_extent: {
        auto extent = extent_for_reader(at.extent);
        if (!extent) return extent.error();
        added = impl_->local->add_reader_extent(*std::move(extent));
        break;
      }
      case OpenStatus::moved: return Error(Code::object_lost, "the object is no longer there");
      case OpenStatus::invalid: return bad("a location that its writer does not publish");
    }
    if (!added) return added.error();
  }
  return Error(Code::internal, "an object could not be opened with all its parts at hand");
}

// --- observe

HostStats Host::stats() const {
  const Impl& impl = *impl_;
  HostStats stats;
  stats.arena = impl.options.arena.count;
  stats.usual_extent = impl.options.extent.count;
  stats.prefaulted = impl.extents.prefaulted();
  stats.committed = impl.extents.granted() + stats.prefaulted;
  stats.waiting = static_cast<std::uint32_t>(impl.waiting.size());
  for (std::uint32_t i = 0; i < impl.processes.size(); ++i) {
    const Process& p = impl.processes[i];
    if (p.presence == Presence::unused) continue;
    ProcessStats one{i, p.presence == Presence::dead, p.adopted, p.bytes, 0, 0};
    one.extents = static_cast<std::uint32_t>(impl.extents.of(i).size());
    one.extent_bytes = impl.extents.bytes_of(i);
    stats.objects += one.objects;
    stats.object_bytes += one.bytes;
    stats.extents += one.extents;
    stats.processes.push_back(one);
  }
  return stats;
}

}  // namespace troupe::objectstore

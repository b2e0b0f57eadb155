#include "troupe/runtime/wire/memory.hpp"

#include "troupe/runtime/wire/internal/fields.hpp"

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <cstring>

#include "schema/memory.capnp.h"

namespace troupe::wire {

using internal::bounded;
using internal::checked;

std::string_view name_of(MemoryUser user) noexcept {
  static constexpr std::string_view kNames[] = {"agent", "driver", "worker",
                                                "actor", "ended",  "node"};
  return kNames[static_cast<std::size_t>(user)];
}

std::string_view name_of(MemoryObject::State state) noexcept {
  static constexpr std::string_view kNames[] = {"pending", "error",     "inline",   "memory",
                                                "disk",    "elsewhere", "forwarded"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace {

template <class Enum>
Enum read_enum(std::uint8_t value, Enum last, const char* field) {
  if (value > static_cast<std::uint8_t>(last)) internal::refuse(field, "is unknown");
  return static_cast<Enum>(value);
}

void write(schema::MemoryProcess::Builder out, const MemoryProcess& m) {
  out.setKind(static_cast<std::uint8_t>(m.kind));
  out.setPid(m.pid);
  internal::write(out.initJob(), m.job);
  out.setSilentNs(m.silent_ns);
  out.setExtents(m.extents);
  out.setExtentBytes(m.extent_bytes);
  out.setObjects(m.objects);
  out.setObjectBytes(m.object_bytes);
}
void read(schema::MemoryProcess::Reader in, MemoryProcess& m) {
  m.kind = read_enum(in.getKind(), MemoryUser::node, "kind");
  m.pid = in.getPid();
  internal::read(in.getJob(), m.job);
  m.silent_ns = in.getSilentNs();
  m.extents = in.getExtents();
  m.extent_bytes = in.getExtentBytes();
  m.objects = in.getObjects();
  m.object_bytes = in.getObjectBytes();
}

void write(schema::MemoryHolder::Builder out, const MemoryHolder& m) {
  out.setKind(static_cast<std::uint8_t>(m.kind));
  out.setPid(m.pid);
  internal::write(out.initNode(), m.node);
  out.setRefs(m.refs);
  out.setSilentNs(m.silent_ns);
}
void read(schema::MemoryHolder::Reader in, MemoryHolder& m) {
  m.kind = read_enum(in.getKind(), MemoryUser::node, "kind");
  m.pid = in.getPid();
  internal::read(in.getNode(), m.node);
  m.refs = in.getRefs();
  m.silent_ns = in.getSilentNs();
}

void write(schema::MemoryObject::Builder out, const MemoryObject& m) {
  internal::write(out.initId(), m.id);
  out.setState(static_cast<std::uint8_t>(m.state));
  out.setBytes(m.bytes);
  internal::write(out.initOwner(), m.owner);
  out.setMakerPid(m.maker_pid);
  internal::write(out.initJob(), m.job);
  out.setPins(m.pins);
  out.setAgeNs(m.age_ns);
  out.setUnusedNs(m.unused_ns);
  auto holders = out.initHolders(checked(m.holders.size(), kMaxMemoryHolders));
  for (unsigned i = 0; i < holders.size(); ++i) write(holders[i], m.holders[i]);
  out.setHeld(m.held);
  out.setSite(internal::CutText(m.site));
}
void read(schema::MemoryObject::Reader in, MemoryObject& m) {
  internal::read(in.getId(), m.id);
  m.state = read_enum(in.getState(), MemoryObject::State::forwarded, "state");
  m.bytes = in.getBytes();
  internal::read(in.getOwner(), m.owner);
  m.maker_pid = in.getMakerPid();
  internal::read(in.getJob(), m.job);
  m.pins = in.getPins();
  m.age_ns = in.getAgeNs();
  m.unused_ns = in.getUnusedNs();
  const auto holders = in.getHolders();
  m.holders.resize(bounded(holders.size(), kMaxMemoryHolders, "holders"));
  for (unsigned i = 0; i < holders.size(); ++i) read(holders[i], m.holders[i]);
  m.held = in.getHeld();
  m.site = internal::read_text(in.getSite(), "site");
}

void write(schema::MemoryJob::Builder out, const MemoryJob& m) {
  internal::write(out.initJob(), m.job);
  out.setBytes(m.bytes);
}
void read(schema::MemoryJob::Reader in, MemoryJob& m) {
  internal::read(in.getJob(), m.job);
  m.bytes = in.getBytes();
}

void write(schema::MemorySite::Builder out, const MemorySite& m) {
  out.setText(internal::CutText(m.text));
  out.setObjects(m.objects);
  out.setBytes(m.bytes);
  out.setMade(m.made);
  out.setGrows(m.grows);
}
void read(schema::MemorySite::Reader in, MemorySite& m) {
  m.text = internal::read_text(in.getText(), "text");
  m.objects = in.getObjects();
  m.bytes = in.getBytes();
  m.made = in.getMade();
  m.grows = in.getGrows();
}

void write(schema::MemoryReport::Builder out, const MemoryReport& m) {
  internal::write(out.initNode(), m.node);
  out.setName(internal::CutText(m.name));
  out.setArenaBytes(m.arena_bytes);
  out.setExtentBytes(m.extent_bytes);
  out.setReadyBytes(m.ready_bytes);
  out.setObjectBytes(m.object_bytes);
  out.setObjects(m.objects);
  out.setWaitingObjects(m.waiting_objects);
  out.setSpills(m.spills);
  out.setSpilled(m.spilled);
  out.setSpilledBytes(m.spilled_bytes);
  out.setDiskBytes(m.disk_bytes);
  out.setRestored(m.restored);
  out.setBadFolders(m.bad_folders);
  out.setAsksWaiting(m.asks_waiting);
  out.setOwnHoles(m.own_holes);
  out.setOwnFreeBytes(m.own_free_bytes);
  out.setOwnLargestFree(m.own_largest_free);
  auto processes = out.initProcesses(checked(m.processes.size(), kMaxMemoryProcesses));
  for (unsigned i = 0; i < processes.size(); ++i) write(processes[i], m.processes[i]);
  auto rows = out.initRows(checked(m.rows.size(), kMaxMemoryRows));
  for (unsigned i = 0; i < rows.size(); ++i) write(rows[i], m.rows[i]);
  out.setRowsInAll(m.rows_in_all);
  out.setJobQuotaBytes(m.job_quota_bytes);
  auto jobs = out.initJobs(checked(m.jobs.size(), kMaxMemoryJobs));
  for (unsigned i = 0; i < jobs.size(); ++i) write(jobs[i], m.jobs[i]);
  out.setCopies(m.copies);
  out.setCopied(m.copied);
  out.setCopyBytes(m.copy_bytes);
  out.setCopyErrors(m.copy_errors);
  auto sites = out.initSites(checked(m.sites.size(), kMaxMemorySites));
  for (unsigned i = 0; i < sites.size(); ++i) write(sites[i], m.sites[i]);
}
void read(schema::MemoryReport::Reader in, MemoryReport& m) {
  internal::read(in.getNode(), m.node);
  m.name = internal::read_text(in.getName(), "name");
  m.arena_bytes = in.getArenaBytes();
  m.extent_bytes = in.getExtentBytes();
  m.ready_bytes = in.getReadyBytes();
  m.object_bytes = in.getObjectBytes();
  m.objects = in.getObjects();
  m.waiting_objects = in.getWaitingObjects();
  m.spills = in.getSpills();
  m.spilled = in.getSpilled();
  m.spilled_bytes = in.getSpilledBytes();
  m.disk_bytes = in.getDiskBytes();
  m.restored = in.getRestored();
  m.bad_folders = in.getBadFolders();
  m.asks_waiting = in.getAsksWaiting();
  m.own_holes = in.getOwnHoles();
  m.own_free_bytes = in.getOwnFreeBytes();
  m.own_largest_free = in.getOwnLargestFree();
  const auto processes = in.getProcesses();
  m.processes.resize(bounded(processes.size(), kMaxMemoryProcesses, "processes"));
  for (unsigned i = 0; i < processes.size(); ++i) read(processes[i], m.processes[i]);
  const auto rows = in.getRows();
  m.rows.resize(bounded(rows.size(), kMaxMemoryRows, "rows"));
  for (unsigned i = 0; i < rows.size(); ++i) read(rows[i], m.rows[i]);
  m.rows_in_all = in.getRowsInAll();
  m.job_quota_bytes = in.getJobQuotaBytes();
  const auto jobs = in.getJobs();
  m.jobs.resize(bounded(jobs.size(), kMaxMemoryJobs, "jobs"));
  for (unsigned i = 0; i < jobs.size(); ++i) read(jobs[i], m.jobs[i]);
  m.copies = in.getCopies();
  m.copied = in.getCopied();
  m.copy_bytes = in.getCopyBytes();
  m.copy_errors = in.getCopyErrors();
  const auto sites = in.getSites();
  m.sites.resize(bounded(sites.size(), kMaxMemorySites, "sites"));
  for (unsigned i = 0; i < sites.size(); ++i) read(sites[i], m.sites[i]);
}

}  // namespace

Blob encode(const MemoryReport& report) {
  capnp::MallocMessageBuilder builder;
  write(builder.initRoot<schema::MemoryReport>(), report);
  const auto words = capnp::messageToFlatArray(builder);
  const auto bytes = words.asBytes();
  const auto* data = reinterpret_cast<const std::byte*>(bytes.begin());
  return Blob(data, data + bytes.size());
}

Result<MemoryReport> decode_memory(BlobView bytes) {
  try {
    if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0)
      internal::refuse("memory report", "is no message");
    const std::size_t words = bytes.size() / sizeof(capnp::word);
    const auto aligned = std::make_unique<std::uint64_t[]>(words);
    std::memcpy(aligned.get(), bytes.data(), bytes.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = words + 64;
    options.nestingLimit = 8;
    capnp::FlatArrayMessageReader reader(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(aligned.get()), words), options);
    MemoryReport report;
    read(reader.getRoot<schema::MemoryReport>(), report);
    return report;
  } catch (const Error& error) {
    return error;
  } catch (const kj::Exception& e) {
    return Error(Code::invalid_argument,
                 std::string("a memory report is malformed: ") + e.getDescription().cStr());
  }
}

}  // namespace troupe::wire

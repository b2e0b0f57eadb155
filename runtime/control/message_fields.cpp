// Parts of control's messages to and from the schema (internal/fields.hpp).
#include "internal/fields.hpp"

#include <algorithm>

namespace troupe::control::internal {
namespace {

constexpr std::size_t kMaxPublicKey = 256;
constexpr std::int64_t kMaxAmount = scheduling::kMostAmount;

std::int64_t clamp(std::int64_t amount) {
  return std::clamp(amount, -kMaxAmount, kMaxAmount);
}
std::int64_t read_amount(std::int64_t amount, const char* field) {
  if (amount < -kMaxAmount || amount > kMaxAmount) refuse(field, "is out of range");
  return amount;
}

void write(schema::Resources::Builder out, const scheduling::Resources& r) {
  out.setCpuTenThousandths(clamp(r.cpus));
  out.setGpuTenThousandths(clamp(r.gpus));
  out.setMemoryBytes(clamp(r.memory));
  if (r.custom.empty()) return;
  auto custom = out.initCustom(checked(r.custom.size(), wire::kMaxResources));
  for (unsigned i = 0; i < custom.size(); ++i) {
    custom[i].setName(CutText(r.custom[i].first));
    custom[i].setTenThousandths(clamp(r.custom[i].second));
  }
}
void read(schema::Resources::Reader in, scheduling::Resources& r) {
  r.cpus = read_amount(in.getCpuTenThousandths(), "cpus");
  r.gpus = read_amount(in.getGpuTenThousandths(), "gpus");
  r.memory = read_amount(in.getMemoryBytes(), "memory");
  const auto custom = in.getCustom();
  r.custom.reserve(bounded(custom.size(), wire::kMaxResources, "resources"));
  for (const auto amount : custom)
    r.custom.emplace_back(read_text(amount.getName(), "resource name"),
                          read_amount(amount.getTenThousandths(), "resource amount"));
}
/// Reads a node's resources, none of which may be negative.
void read_total(schema::Resources::Reader in, scheduling::Resources& r) {
  read(in, r);
  bool negative = r.cpus < 0 || r.gpus < 0 || r.memory < 0;
  for (const auto& amount : r.custom) negative = negative || amount.second < 0;
  if (negative) refuse("resources", "are negative");
}

using LabelList = capnp::List<troupe::schema::Label>;
void write(LabelList::Builder out, const scheduling::Labels& labels) {
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setKey(CutText(labels[i].first));
    out[i].setValue(CutText(labels[i].second));
  }
}
void read(LabelList::Reader in, scheduling::Labels& labels) {
  labels.reserve(bounded(in.size(), wire::kMaxLabels, "labels"));
  for (const auto label : in)
    labels.emplace_back(read_text(label.getKey(), "label key"),
                        read_text(label.getValue(), "label value"));
}

}  // namespace

void write(schema::NodeDescription::Builder out, const NodeDescription& node) {
  fields::write(out.initId(), node.id);
  out.setName(CutText(node.name));
  out.setAddress(CutText(node.address));
  out.setPublicKey(data_of(node.public_key));
  write(out.initResources(), node.resources);
  if (!node.labels.empty())
    write(out.initLabels(checked(node.labels.size(), wire::kMaxLabels)), node.labels);
  out.setBesideControl(node.beside_control);
}
void read(schema::NodeDescription::Reader in, NodeDescription& node) {
  fields::read(in.getId(), node.id);
  node.name = read_text(in.getName(), "node name");
  node.address = read_text(in.getAddress(), "address");
  const auto key = in.getPublicKey();
  bounded(key.size(), kMaxPublicKey, "public key");
  node.public_key = string_of(key);
  read_total(in.getResources(), node.resources);
  read(in.getLabels(), node.labels);
  node.beside_control = in.getBesideControl();
}

void write(schema::NodeReport::Builder out, const NodeReport& report) {
  write(out.initFree(), report.view.free);
  const auto& gpu_free = report.view.gpu_free;
  auto gpus = out.initGpuFreeTenThousandths(checked(gpu_free.size(), wire::kMaxGpus));
  for (unsigned i = 0; i < gpus.size(); ++i) gpus.set(i, clamp(gpu_free[i]));
  out.setAccepts(report.view.accepts);
  out.setWaiting(report.view.waiting);
  out.setMostActors(report.view.most_actors);
  out.setStoreCapacityBytes(report.store_capacity);
  out.setStoreUsedBytes(report.store_used);
  out.setWorkers(report.workers);
  if (!report.unreachable.empty())
    fields::write_ids(out.initUnreachable(checked(report.unreachable.size(), kMaxUnreachable)),
                      report.unreachable);
}
void read(schema::NodeReport::Reader in, NodeReport& report) {
  read(in.getFree(), report.view.free);
  const auto gpus = in.getGpuFreeTenThousandths();
  report.view.gpu_free.reserve(bounded(gpus.size(), wire::kMaxGpus, "gpus"));
  for (const std::int64_t amount : gpus)
    report.view.gpu_free.push_back(read_amount(amount, "gpus"));
  report.view.accepts = in.getAccepts();
  report.view.waiting = in.getWaiting();
  report.view.most_actors = in.getMostActors();
  report.store_capacity = in.getStoreCapacityBytes();
  report.store_used = in.getStoreUsedBytes();
  report.workers = in.getWorkers();
  fields::read_ids(in.getUnreachable(), report.unreachable, kMaxUnreachable, "unreachable nodes");
}

namespace {

void write(troupe::schema::ResourceDemand::Builder out, const scheduling::ResourceDemand& demand) {
  wire::ResourceDemand plain;
  plain.cpus = clamp(demand.need.cpus);
  plain.gpus = clamp(demand.need.gpus);
  plain.memory_bytes =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, clamp(demand.need.memory)));
  plain.resources = demand.need.custom;
  for (auto& amount : plain.resources) amount.second = clamp(amount.second);
  plain.labels = demand.labels;
  plain.placement = static_cast<std::uint8_t>(demand.placement);
  plain.node = demand.node;
  plain.soft = demand.soft;
  fields::write(out, plain);
}
void read(troupe::schema::ResourceDemand::Reader in, scheduling::ResourceDemand& demand) {
  wire::ResourceDemand plain;
  fields::read(in, plain);
  demand.need.cpus = read_amount(plain.cpus, "cpus");
  demand.need.gpus = read_amount(plain.gpus, "gpus");
  if (plain.memory_bytes > static_cast<std::uint64_t>(kMaxAmount))
    refuse("memory", "is out of range");
  demand.need.memory = static_cast<std::int64_t>(plain.memory_bytes);
  for (const auto& amount : plain.resources) read_amount(amount.second, "resource amount");
  demand.need.custom = std::move(plain.resources);
  demand.labels = std::move(plain.labels);
  demand.placement = static_cast<scheduling::Placement>(plain.placement);
  demand.node = plain.node;
  demand.soft = plain.soft;
}

}  // namespace

void write(schema::ActorSpec::Builder out, const ActorSpec& spec) {
  fields::write(out.initId(), spec.id);
  fields::write(out.initJob(), spec.job);
  out.setName(CutText(spec.name));
  out.setNameSpace(CutText(spec.name_space));
  out.setClassName(CutText(spec.class_name));
  out.setCreation(data_of(spec.creation));
  fields::write(out.initLifetime(), spec.lifetime);
  fields::write(out.initOwner(), spec.owner);
  write(out.initDemand(), spec.demand);
  const auto& near = spec.demand.locality;
  if (!near.empty()) {
    auto locality = out.initLocality(checked(near.size(), kMaxRows));
    for (unsigned i = 0; i < locality.size(); ++i) {
      fields::write(locality[i].initNode(), near[i].first);
      locality[i].setSizeBytes(near[i].second);
    }
  }
  out.setMaxRestarts(spec.max_restarts);
  out.setRestartWindowNs(spec.restart_window.count());
  out.setDetached(spec.detached);
}
void read(schema::ActorSpec::Reader in, ActorSpec& spec) {
  fields::read(in.getId(), spec.id);
  fields::read(in.getJob(), spec.job);
  spec.name = read_text(in.getName(), "actor name");
  spec.name_space = read_text(in.getNameSpace(), "name space");
  spec.class_name = read_text(in.getClassName(), "class name");
  spec.creation = string_of(in.getCreation());
  fields::read(in.getLifetime(), spec.lifetime);
  fields::read(in.getOwner(), spec.owner);
  read(in.getDemand(), spec.demand);
  const auto locality = in.getLocality();
  spec.demand.locality.reserve(bounded(locality.size(), kMaxRows, "localities"));
  for (const auto near : locality) {
    auto& [node, bytes] = spec.demand.locality.emplace_back();
    fields::read(near.getNode(), node);
    bytes = near.getSizeBytes();
  }
  spec.max_restarts = in.getMaxRestarts();
  if (spec.max_restarts < -1) refuse("number of restarts", "is out of range");
  spec.restart_window = Duration(in.getRestartWindowNs());
  if (spec.restart_window < Duration::zero()) refuse("restart window", "is negative");
  spec.detached = in.getDetached();
}

void write(schema::JobRecord::Builder out, const JobRecord& job) {
  fields::write(out.initId(), job.id);
  out.setName(CutText(job.name));
  out.setState(static_cast<std::uint8_t>(job.state));
  fields::write(out.initNode(), job.node);
  out.setEpoch(job.epoch);
  out.setWhy(CutText(job.why));
  out.setStartedNs(job.started_ns);
  out.setEndedNs(job.ended_ns);
  out.setProgram(CutText(job.program, kMaxPath));
  if (!job.arguments.empty())
    fields::write(out.initArguments(checked(job.arguments.size(), kMaxRows)), job.arguments,
                  wire::kMaxProgramArgument);
  out.setIgnoredSignals(job.ignored_signals);
  out.setBlockedSignals(job.blocked_signals);
  if (!job.user.empty()) out.setUser(CutText(job.user, wire::kMaxUser));
  out.setPid(job.pid);
  if (job.files.empty()) return;
  auto files = out.initFiles(checked(job.files.size(), kMaxRows));
  for (unsigned i = 0; i < files.size(); ++i) {
    files[i].setPath(CutText(job.files[i].first, kMaxPath));
    files[i].setSha256(CutText(job.files[i].second));
  }
}
void read(schema::JobRecord::Reader in, JobRecord& job) {
  fields::read(in.getId(), job.id);
  job.name = read_text(in.getName(), "job name");
  job.state = read_enum(in.getState(), JobState::stopped, "job state");
  fields::read(in.getNode(), job.node);
  job.epoch = in.getEpoch();
  job.why = read_text(in.getWhy(), "reason");
  job.started_ns = in.getStartedNs();
  job.ended_ns = in.getEndedNs();
  job.program = read_text(in.getProgram(), "program", kMaxPath);
  fields::read_texts(in.getArguments(), job.arguments, "arguments", wire::kMaxProgramArgument);
  job.ignored_signals = in.getIgnoredSignals();
  job.blocked_signals = in.getBlockedSignals();
  job.user = read_text(in.getUser(), "user", wire::kMaxUser);
  job.pid = in.getPid();
  const auto files = in.getFiles();
  job.files.reserve(bounded(files.size(), kMaxRows, "files"));
  for (const auto file : files)
    job.files.emplace_back(read_text(file.getPath(), "file's path", kMaxPath),
                           read_text(file.getSha256(), "file's sum"));
}

void write(schema::ObjectName::Builder out, const ObjectName& name) {
  out.setName(CutText(name.name));
  fields::write(out.initObject(), name.object);
  fields::write(out.initOwner(), name.owner);
  fields::write(out.initKeeper(), name.keeper);
  out.setFingerprint(name.fingerprint);
  out.setType(CutText(name.type));
  fields::write(out.initJob(), name.job);
  out.setSizeBytes(name.bytes);
}
void read(schema::ObjectName::Reader in, ObjectName& name) {
  name.name = read_text(in.getName(), "object name");
  fields::read(in.getObject(), name.object);
  fields::read(in.getOwner(), name.owner);
  fields::read(in.getKeeper(), name.keeper);
  name.fingerprint = in.getFingerprint();
  name.type = read_text(in.getType(), "type");
  fields::read(in.getJob(), name.job);
  name.bytes = in.getSizeBytes();
}

}  // namespace troupe::control::internal

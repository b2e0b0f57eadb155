#include "troupe/train/params/plan.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/sizes.hpp"
#include "troupe/train/params/internal/rehearsal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace troupe::train {
namespace {

using internal::reject;

constexpr std::int64_t kFloatBytes = sizeof(float);

std::int64_t tied_bytes(const Index& index) {
  std::int64_t count = 0;
  for (const TensorPlace& tensor : index.tensors())
    if (tensor.tied_to >= 0) count += internal::round_up(tensor.local.count(), kAlign);
  return count * kFloatBytes;
}

/// Returns the bytes of a store. Sharded kinds have 1/dp of the slabs.
Store::Bytes store_bytes(const Index& index, const Layout& layout, int moments) {
  const int zero = layout.dp == 1 ? 0 : layout.zero;
  const std::int64_t weight = kernels::size_of(layout.compute), floats = kFloatBytes;
  const std::int64_t master = weight == 2 ? floats : 0;  // beside 16-bit weights
  const auto held = [&](std::int64_t bytes, int from) {
    const std::int64_t slab = index.slab_size() * bytes;
    return zero >= from ? slab / layout.dp : slab;
  };
  Store::Bytes bytes;
  bytes.weights = held(weight, 3);
  bytes.master = held(master, 1);
  bytes.gradients = held(floats, 2);
  bytes.moments = moments * held(floats, 1);
  bytes.tied = tied_bytes(index);
  bytes.copies = index.copy_size() * weight;
  if (layout.offload == Offload::optimizer) bytes.host = bytes.moments;
  const std::int64_t all = weight + master + floats * (1 + moments);
  const std::int64_t whole = (zero < 3 ? weight : 0) + (zero < 2 ? floats : 0) +
                             (zero < 1 ? master + floats * moments : 0);
  const std::int64_t p = index.parameter_count();
  bytes.padding = bytes.weights + bytes.master + bytes.gradients + bytes.moments + bytes.tied -
                  whole * p - (all - whole) * p / layout.dp - index.tied_size() * floats;
  return bytes;
}

/// Returns the memory to pack partial gradients in: that of the largest unit with several of
/// them.
std::int64_t partial_bytes(const Index& index, const Layout& layout) {
  if (layout.tp == 1) return 0;
  std::int64_t most = 0;
  for (const UnitPlace& unit : index.units()) {
    std::int64_t count = 0;
    int tensors = 0;
    for (const TensorId id : unit.tensors) {
      if (!index[id].shard.partial) continue;
      ++tensors;
      count += index[id].local.count();
    }
    if (tensors > 1) most = std::max(most, count * kFloatBytes);
  }
  return most;
}

std::int64_t largest_unit(const Index& index) {
  std::int64_t largest = 0;
  for (const UnitPlace& unit : index.units()) largest = std::max(largest, unit.size);
  return largest;
}

/// Returns the memory of initial values that is allocated beside the store. With zero >= 2 they
/// lie in slabs of the pool instead.
std::int64_t initial_bytes(const Index& index, const Layout& layout) {
  const bool shares_master = layout.compute != DType::f32 && layout.dp > 1 && layout.zero == 1;
  return shares_master ? kFloatBytes * largest_unit(index) : 0;
}

/// Returns the bytes for weights and gradients of the largest part of a unit that a rank updates.
std::int64_t staging_bytes(const Index& index, const Layout& layout) {
  if (layout.offload == Offload::none) return 0;
  const std::int64_t largest = largest_unit(index);
  return 2 * kFloatBytes * (layout.zero == 0 ? largest : largest / layout.dp);
}

collective::Traffic traffic_of(const internal::Moved& moved, int ranks) {
  const auto bytes = [ranks](std::int64_t times) {
    return static_cast<std::uint64_t>(times / ranks);
  };
  return {.all_reduce = bytes(moved.all_reduce),
          .reduce_scatter = bytes(moved.reduce_scatter),
          .all_gather = bytes(moved.all_gather),
          .norm = bytes(moved.norm),
          .padding = bytes(moved.padding)};
}

/// Returns the layouts of a mesh, the ones that cost the least time first.
std::vector<Layout> layouts_to_try(const Layout& mesh, bool moments) {
  std::vector<Layout> all;
  for (const Offload offload : {Offload::none, Offload::optimizer})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (int zero = 0; zero <= (mesh.dp == 1 ? 0 : 3); ++zero) {
        Layout layout = mesh;
        layout.zero = zero;
        layout.offload = offload;
        layout.recompute = recompute;
        if (zero >= 2 && layout.pp > 1) continue;
        if (offload == Offload::none || moments) all.push_back(layout);
      }
  return all;
}

/// Returns all meshes of the ranks: data parallelism first.
std::vector<Layout> meshes_of(const PlanSearch& search, int ranks) {
  std::vector<Layout> meshes;
  for (int divided = 1; divided <= ranks; ++divided)
    for (int tp = 1; tp <= divided; ++tp) {
      if (ranks % divided != 0 || divided % tp != 0) continue;
      Layout mesh = search.base;
      mesh.dp = ranks / divided;
      mesh.tp = tp;
      mesh.pp = divided / tp;
      mesh.sequence = tp > 1;
      if (mesh.dp <= search.most_dp && tp <= search.most_tp && mesh.pp <= search.most_pp)
        meshes.push_back(mesh);
    }
  return meshes;
}

/// Returns whether the model can be divided over the mesh. Sets mesh.sequence where sequence
/// parallelism is possible.
bool can_divide(const PlannedModel& model, Layout& mesh) {
  if (mesh.tp == 1 && mesh.pp == 1) return true;  // an error here would be an error in every layout
  for (const bool sequence : {true, false}) {
    if (sequence && mesh.tp == 1) continue;
    mesh.sequence = sequence;
    try {
      check(mesh, mesh.ranks());
      model.index(mesh, {});
      model.activations(mesh, {});
      return true;
    } catch (const InvalidArgument&) {
    }
  }
  return false;
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: break;
  }
  return "full";
}

using Row = std::vector<std::string>;

Row heading() {
  return {"dp",          "tp",      "pp",        "zero",    "recompute",  "offload",
          "weights",     "master",  "gradients", "moments", "tied",       "transient",
          "activations", "padding", "device",    "host",    "all_reduce", "reduce_scatter",
          "all_gather",  "over tp", "over pp"};
}

Row row_of(const Plan& plan) {
  const auto moved = [](std::uint64_t bytes) {
    return size_text(static_cast<std::int64_t>(bytes));
  };
  return {std::to_string(plan.layout.dp),
          std::to_string(plan.layout.tp),
          std::to_string(plan.layout.pp),
          std::to_string(plan.layout.zero),
          std::string(name_of(plan.layout.recompute)),
          plan.layout.offload == Offload::none ? "none" : "optimizer",
          size_text(plan.store.weights),
          size_text(plan.store.master),
          size_text(plan.store.gradients),
          size_text(plan.store.moments),
          size_text(plan.store.tied),
          size_text(plan.store.transient),
          size_text(plan.activations),
          size_text(plan.store.padding),
          size_text(plan.device_bytes()),
          size_text(plan.host_bytes()),
          moved(plan.traffic.all_reduce),
          moved(plan.traffic.reduce_scatter),
          moved(plan.traffic.all_gather),
          moved(plan.exchanges.tp.payload()),
          moved(plan.exchanges.pp.payload() + plan.exchanges.tied.payload())};
}

/// Returns a text like "weights 4.00 GiB, gradients 4.00 GiB", without the kinds of 0 bytes.
std::string parts_of(const Plan& plan) {
  const Store::Bytes& store = plan.store;
  const std::pair<const char*, std::int64_t> parts[] = {
      {"weights", store.weights},        {"master weights", store.master},
      {"gradients", store.gradients},    {"moments", store.moments - store.host},
      {"tied gradients", store.tied},    {"copies of weights", store.copies},
      {"units in use", store.transient}, {"partial gradients", plan.partials},
      {"activations", plan.activations}};
  std::string text;
  for (const auto& [name, bytes] : parts)
    if (bytes > 0) text += (text.empty() ? "" : ", ") + std::string(name) + " " + size_text(bytes);
  return text;
}

}  // namespace

Plan plan(const Index& index, const Layout& layout, const ActivationBytes& activations,
          const PlanOptions& options) {
  check(layout, layout.ranks());
  if (index.dp() != layout.dp)
    reject("the index is sealed for " + std::to_string(index.dp()) +
           " data-parallel ranks, and the layout has " + std::to_string(layout.dp));
  const internal::Rehearsal step(index, layout.zero, layout.micro, layout.compute);
  Plan plan;
  plan.layout = layout;
  plan.parameters = index.parameter_count();
  plan.store = store_bytes(index, layout, options.moments);
  plan.store.transient = plan.store.peak_transient = step.peak();
  plan.activations = activations(layout);
  plan.partials = partial_bytes(index, layout);
  plan.initial = initial_bytes(index, layout);
  plan.staging = staging_bytes(index, layout);
  plan.traffic = traffic_of(step.moved(), layout.dp);
  return plan;
}

Plan plan(const PlannedModel& model, const Layout& layout, const RankPlace& rank) {
  Plan one = plan(
      model.index(layout, rank), layout,
      [&](const Layout& same) { return model.activations(same, rank); }, model.options);
  one.rank = rank;
  if (model.exchanges) one.exchanges = model.exchanges(layout, rank);
  return one;
}

Plan plan(const PlannedModel& model, const Layout& layout) {
  Plan most = plan(model, layout, RankPlace{});
  for (int pp = 1; pp < layout.pp; ++pp) {
    Plan other = plan(model, layout, {.pp = pp});
    if (other.device_bytes() > most.device_bytes()) most = std::move(other);
  }
  return most;
}

std::vector<Plan> plans_that_fit(const PlannedModel& model, const PlanSearch& search) {
  std::vector<Plan> fitting;
  for (const int ranks : search.ranks)
    for (Layout& mesh : meshes_of(search, ranks)) {
      if (!can_divide(model, mesh)) continue;
      for (const Layout& layout : layouts_to_try(mesh, model.options.moments > 0)) {
        Plan one = plan(model, layout);
        if (one.device_bytes() > search.memory) continue;
        if (search.host >= 0 && one.host_bytes() > search.host) continue;
        fitting.push_back(std::move(one));
      }
    }
  return fitting;
}

std::string table(std::span<const Plan> plans) {
  std::vector<Row> rows = {heading()};
  for (const Plan& plan : plans) rows.push_back(row_of(plan));
  std::vector<std::size_t> widths(rows[0].size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += (i == 0 ? "" : "  ") + std::string(widths[i] - row[i].size(), ' ') + row[i];
    text += '\n';
  }
  return text;
}

std::string memory_sentence(const Plan& plan, std::int64_t memory, std::span<const Plan> fitting) {
  std::string text = layout_text(plan.layout) + " needs " + size_text(plan.device_bytes()) +
                     " on each rank's device (" + parts_of(plan) + ")";
  if (memory > 0) text += " of " + size_text(memory);
  if (fitting.empty())
    return text +
           "; no other layout fits: use more ranks, a smaller micro-batch or a smaller model";
  text += "; these fit: ";
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(fitting.size(), kMost); ++i)
    text += (i == 0 ? "" : ", or ") + layout_text(fitting[i].layout) + " (" +
            size_text(fitting[i].device_bytes()) + ")";
  return text;
}

std::string size_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  const int digits = unit == 0 ? 0 : value < 10 ? 2 : value < 1000 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, kUnits[unit]);
  return text.data();
}

std::string layout_text(const Layout& layout) {
  std::string text = "dp=" + std::to_string(layout.dp);
  if (layout.tp > 1) text += " tp=" + std::to_string(layout.tp);
  if (layout.pp > 1) text += " pp=" + std::to_string(layout.pp);
  if (layout.sequence) text += " sequence";
  if (layout.pp > 1 && layout.schedule != "1f1b") text += " schedule=" + layout.schedule;
  text += " zero=" + std::to_string(layout.zero);
  if (layout.micro > 1) text += " micro=" + std::to_string(layout.micro);
  if (layout.compute != DType::f32)
    text += " compute=" + std::string(kernels::name_of(layout.compute));
  if (layout.recompute != Recompute::none)
    text += " recompute=" + std::string(name_of(layout.recompute));
  if (layout.offload != Offload::none) text += " offload=optimizer";
  return text;
}

}  // namespace troupe::train

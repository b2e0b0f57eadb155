// Engine snapshots: assembles whole tensors from any layout, and cuts them for any other.
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/train/engine/internal/kinds.hpp"
#include "troupe/train/engine/internal/state.hpp"
#include "troupe/train/engine/internal/whole_tensors.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/params/shards.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>

namespace troupe::train {
namespace {

using internal::Kind;
using internal::kinds_of;
using internal::kKinds;

/// Returns whether the snapshot has moments of an optimizer, all of them or some.
bool has_moments(const SnapshotView& snapshot) {
  return std::any_of(snapshot.tensors.begin(), snapshot.tensors.end(), [](const auto& tensor) {
    return std::any_of(std::begin(kKinds) + 1, std::end(kKinds),
                       [&](const Kind& kind) { return tensor.name.starts_with(kind.prefix); });
  });
}

/// Returns the kinds of tensors that the snapshot must have. A snapshot of weights alone is whole.
std::span<const Kind> kinds_in(const SnapshotView& snapshot, const OptimizerOptions& optimizer) {
  return has_moments(snapshot) ? kinds_of(optimizer) : std::span(kKinds).first(1);
}

/// Returns the tensor without its bytes.
NamedTensor named(const Kind& kind, const internal::CatalogueTensor& tensor) {
  return {std::string(kind.prefix) + tensor.name,
          DType::f32,
          {tensor.shape.begin(), tensor.shape.end()},
          {}};
}

std::size_t bytes_of(const internal::CatalogueTensor& tensor) {
  return static_cast<std::size_t>(tensor.shape.count()) * sizeof(float);
}

std::vector<NamedTensor> tensors_of(const internal::Parts& parts, std::span<const Kind> kinds) {
  std::vector<NamedTensor> all;
  for (const Kind& kind : kinds)
    for (const auto& unit : parts.catalogue)
      for (const internal::CatalogueTensor& tensor : unit) all.push_back(named(kind, tensor));
  return all;
}

/// Returns the whole tensors of every unit of the model, kind after kind, on the rank `root`, or
/// on all with -1.
std::vector<NamedTensor> read_all(internal::Parts& parts, internal::WholeTensors& whole, int root) {
  std::vector<NamedTensor> all;
  for (const Kind& kind : kinds_of(parts.optimizer))
    for (int unit = 0; unit < parts.unit_count(); ++unit) {
      const std::vector<std::vector<float>> mine = whole.read(unit, kind.part);
      const auto& tensors = parts.catalogue[static_cast<std::size_t>(unit)];
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        NamedTensor& tensor = all.emplace_back(named(kind, tensors[t]));
        tensor.bytes.resize(bytes_of(tensors[t]));
        if (!mine.empty()) std::memcpy(tensor.bytes.data(), mine[t].data(), tensor.bytes.size());
        if (collective::Communicator* pp = parts.mesh.pp.get())
          pp->broadcast({tensor.bytes.data(), DType::f32, tensors[t].shape.count()},
                        whole.rank_of(unit))
              .wait();
        if (root >= 0 && root != parts.mesh.rank()) all.pop_back();
      }
    }
  return all;
}

/// Returns XXH64 of every tensor's weights in the order of the catalogue, on all ranks.
std::vector<std::int64_t> hash_all(internal::Parts& parts, internal::WholeTensors& whole) {
  std::vector<std::int64_t> hashes;
  for (int unit = 0; unit < parts.unit_count(); ++unit) {
    const std::size_t first = hashes.size();
    hashes.resize(first + parts.catalogue[static_cast<std::size_t>(unit)].size());
    const std::vector<std::vector<float>> mine = whole.read(unit, Part::weights);
    for (std::size_t t = 0; t < mine.size(); ++t)
      hashes[first + t] = static_cast<std::int64_t>(hash_floats(mine[t]));
  }
  if (collective::Communicator* pp = parts.mesh.pp.get())  // every stage but the unit's own adds 0
    pp->all_reduce(hashes, collective::Reduce::sum, {.purpose = collective::Purpose::count}).wait();
  return hashes;
}

void require_same(const SnapshotView& snapshot, const internal::Parts& parts) {
  const std::vector<NamedTensor> wanted = tensors_of(parts, kinds_in(snapshot, parts.optimizer));
  const std::string why = difference(snapshot.tensors, wanted);
  if (!why.empty()) internal::reject("the snapshot is not of this model: " + why);
  if (snapshot.step < 0)
    internal::reject("the snapshot is of step " + std::to_string(snapshot.step));
  if (snapshot.moments_since < 0 || snapshot.moments_since > snapshot.step)
    internal::reject("the snapshot is of step " + std::to_string(snapshot.step) +
                     ", and its moments begin at step " + std::to_string(snapshot.moments_since));
  for (const TensorOf<BlobView>& tensor : snapshot.tensors) {
    std::size_t bytes = sizeof(float);
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
    if (tensor.bytes.size() != bytes)
      internal::reject("the snapshot's tensor " + tensor.name + " has " +
                       std::to_string(tensor.bytes.size()) + " bytes, and its shape takes " +
                       std::to_string(bytes));
  }
}

/// Hashes everything that restore() reads. Sums over tensors, so that their order does not
/// matter.
std::uint64_t hash_of(const SnapshotView& snapshot) {
  std::uint64_t sum = 0;
  for (const TensorOf<BlobView>& tensor : snapshot.tensors) {
    const std::uint64_t both[] = {hash_bytes(tensor.name.data(), tensor.name.size()),
                                  hash_bytes(tensor.bytes.data(), tensor.bytes.size())};
    sum += hash_bytes(both, sizeof both);
  }
  const LossScale scale = snapshot.loss_scale.value_or(LossScale{.scale = 0});
  const std::uint64_t all[] = {sum,
                               static_cast<std::uint64_t>(snapshot.step),
                               snapshot.seed,
                               std::bit_cast<std::uint32_t>(scale.scale),
                               static_cast<std::uint64_t>(scale.good_steps),
                               static_cast<std::uint64_t>(snapshot.moments_since)};
  return hash_bytes(all, sizeof all);
}

using ByName = std::map<std::string_view, const TensorOf<BlobView>*>;

/// Returns this rank's shard of the unit, with the tensors of this kind, or zeros if there are
/// none.
std::vector<float> slab_of(const internal::Parts& parts, int number, const Kind& kind,
                           const ByName* tensors) {
  const UnitPlace& unit = parts.index.units()[static_cast<std::size_t>(number)];
  std::vector<float> slab(static_cast<std::size_t>(unit.size)), whole;  // padding is zero
  if (tensors == nullptr) return slab;
  for (const TensorId id : unit.tensors) {
    const TensorPlace& tensor = parts.index[id];
    const TensorOf<BlobView>& from = *tensors->at(std::string(kind.prefix) + tensor.name);
    whole.resize(from.bytes.size() / sizeof(float));
    std::memcpy(whole.data(), from.bytes.data(), from.bytes.size());
    take_shard(tensor, whole,
               std::span(slab).subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.local.count())));
  }
  return slab;
}

}  // namespace

Snapshot Engine::State::snapshot(int root) {
  require_running();
  require_weights();
  Snapshot result{
      .step = steps, .seed = seed, .tensors = {}, .moments_since = update.moments_since()};
  if (scaler) result.loss_scale = scaler->state();
  const std::string difference = guarded("snapshot()", [&] {
    internal::WholeTensors whole(parts);
    result.tensors = read_all(parts, whole, root);
    return whole.difference();
  });
  if (!difference.empty()) internal::reject(difference);
  return result;
}

void Engine::State::restore(const SnapshotView& snapshot, std::uint64_t identity) {
  agree("restore()", "snapshots", [&] {
    require_same(snapshot, parts);
    if (snapshot.loss_scale) LossScaler().restore(*snapshot.loss_scale);  // throws if it is invalid
    const bool alone = parts.mesh.shape.ranks() == 1;
    return internal::Counts{.common = alone || identity != 0 ? identity : hash_of(snapshot)};
  });
  ByName by_name;
  for (const TensorOf<BlobView>& tensor : snapshot.tensors) by_name[tensor.name] = &tensor;
  const std::size_t present = kinds_in(snapshot, parts.optimizer).size();
  const std::span<const Kind> kinds = kinds_of(parts.optimizer);
  guarded("restore()", [&] {
    for (std::size_t k = 0; k < kinds.size(); ++k)
      for (int unit = 0; unit < parts.unit_count(); ++unit)
        if (parts.has(unit))
          parts.store.write_whole(unit, kinds[k].part,
                                  slab_of(parts, unit, kinds[k], k < present ? &by_name : nullptr));
    pipeline.ties().publish();
    parts.store.zero_gradients();
    steps = snapshot.step;
    seed = snapshot.seed;
    has_weights = true;
    if (scaler) scaler->reset();
    if (scaler && snapshot.loss_scale) scaler->restore(*snapshot.loss_scale);
  });
  const bool begins = present < kinds.size();  // with moments of 0
  update.begin_moments(begins ? snapshot.step : snapshot.moments_since);
  if (!begins || said_moments || parts.mesh.rank() != 0) return;
  said_moments = true;
  std::fprintf(stderr,
               "train: the snapshot of step %lld has weights alone, so the optimizer's moments "
               "begin at 0\n",
               static_cast<long long>(snapshot.step));
}

std::uint64_t Engine::State::weights_hash() {
  require_running();
  require_weights();
  std::uint64_t hash = 0;
  const std::string difference = guarded("weights_hash()", [&] {
    internal::WholeTensors whole(parts);
    const std::vector<std::int64_t> hashes = hash_all(parts, whole);
    hash = hash_bytes(hashes.data(), hashes.size() * sizeof(std::int64_t));
    return whole.difference();
  });
  if (!difference.empty()) internal::reject(difference);
  return hash;
}

}  // namespace troupe::train

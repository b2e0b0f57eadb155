// Whole tensors out of any layout, and back into any other.
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/train/engine/internal/state.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <cstring>
#include <map>
#include <string_view>

namespace troupe::train {
namespace {

/// What a snapshot has of every tensor, in its order.
struct Kind {
  Part part;
  std::string_view prefix;
};
constexpr Kind kKinds[] = {{Part::weights, ""},
                           {Part::first_moment, "optimizer.m."},
                           {Part::second_moment, "optimizer.v."}};

std::span<const Kind> kinds_of(const OptimizerOptions& optimizer) {
  return std::span(kKinds).first(std::size_t{1} + static_cast<std::size_t>(optimizer.moments()));
}

std::size_t bytes_of(const TensorPlace& tensor) {
  return static_cast<std::size_t>(tensor.local.count()) * sizeof(float);
}

/// Without bytes.
NamedTensor named(const Kind& kind, const TensorPlace& tensor) {
  return {std::string(kind.prefix) + tensor.name,
          DType::f32,
          {tensor.global.begin(), tensor.global.end()},
          {}};
}

std::vector<NamedTensor> wanted(const internal::Parts& parts) {
  std::vector<NamedTensor> all;
  for (const Kind& kind : kinds_of(parts.optimizer))
    for (const UnitPlace& unit : parts.index.units())
      for (const TensorId id : unit.tensors) all.push_back(named(kind, parts.index[id]));
  return all;
}

void require_same(const SnapshotView& snapshot, const internal::Parts& parts) {
  const std::string why = difference(snapshot.tensors, wanted(parts));
  if (!why.empty()) internal::reject("the snapshot is not of this model: " + why);
  if (snapshot.step < 0)
    internal::reject("the snapshot is of step " + std::to_string(snapshot.step));
  for (const TensorOf<BlobView>& tensor : snapshot.tensors) {
    std::size_t bytes = sizeof(float);
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
    if (tensor.bytes.size() != bytes)
      internal::reject("the snapshot's tensor " + tensor.name + " has " +
                       std::to_string(tensor.bytes.size()) + " bytes, and its shape takes " +
                       std::to_string(bytes));
  }
}

}  // namespace

Snapshot Engine::State::snapshot(int root) {
  return guarded("snapshot()", [&] {
    Snapshot result{.step = steps, .seed = seed, .tensors = {}};
    std::vector<float> slab;
    for (const Kind& kind : kinds_of(parts.optimizer))
      for (int u = 0; u < parts.unit_count(); ++u) {
        const UnitPlace& unit = parts.index.units()[static_cast<std::size_t>(u)];
        if (unit.size == 0) continue;
        slab.resize(static_cast<std::size_t>(unit.size));
        parts.store.read_whole(u, kind.part, slab);
        if (root >= 0 && root != parts.mesh.rank()) continue;
        for (const TensorId id : unit.tensors) {
          const TensorPlace& tensor = parts.index[id];
          NamedTensor& whole = result.tensors.emplace_back(named(kind, tensor));
          const auto* first = reinterpret_cast<const std::byte*>(slab.data() + tensor.offset);
          whole.bytes.assign(first, first + bytes_of(tensor));
        }
      }
    return result;
  });
}

void Engine::State::restore(const SnapshotView& snapshot) {
  require_running();
  require_same(snapshot, parts);
  std::map<std::string_view, const TensorOf<BlobView>*> by_name;
  for (const TensorOf<BlobView>& tensor : snapshot.tensors) by_name[tensor.name] = &tensor;
  guarded("restore()", [&] {
    std::vector<float> slab;
    for (const Kind& kind : kinds_of(parts.optimizer))
      for (int u = 0; u < parts.unit_count(); ++u) {
        const UnitPlace& unit = parts.index.units()[static_cast<std::size_t>(u)];
        if (unit.size == 0) continue;
        slab.assign(static_cast<std::size_t>(unit.size), 0.0f);  // padding is zero
        for (const TensorId id : unit.tensors) {
          const TensorPlace& tensor = parts.index[id];
          const std::string name = std::string(kind.prefix) + tensor.name;
          std::memcpy(slab.data() + tensor.offset, by_name.at(name)->bytes.data(),
                      bytes_of(tensor));
        }
        parts.store.write_whole(u, kind.part, slab);
      }
    parts.store.zero_gradients();
    steps = snapshot.step;
    seed = snapshot.seed;
  });
}

std::uint64_t Engine::State::weights_hash() {
  return guarded("weights_hash()", [&] {
    std::vector<std::uint64_t> hashes;
    std::vector<float> slab;
    for (int u = 0; u < parts.unit_count(); ++u) {
      const UnitPlace& unit = parts.index.units()[static_cast<std::size_t>(u)];
      if (unit.size == 0) continue;
      slab.resize(static_cast<std::size_t>(unit.size));
      parts.store.read_whole(u, Part::weights, slab);
      for (const TensorId id : unit.tensors)
        hashes.push_back(
            hash_bytes(slab.data() + parts.index[id].offset, bytes_of(parts.index[id])));
    }
    return hash_bytes(hashes.data(), hashes.size() * sizeof(std::uint64_t));
  });
}

}  // namespace troupe::train

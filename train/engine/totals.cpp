#include "troupe/train/engine/internal/totals.hpp"

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/hash.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace troupe::train::internal {
namespace {

constexpr std::size_t kNumbers = 6;
constexpr collective::Purpose kCount = collective::Purpose::count;

int dp_index(int rank, const collective::MeshShape& shape) {
  return rank / shape.tp % shape.dp;
}

std::string mismatch_of(std::span<const Counts> all, const collective::MeshShape& shape, int rank) {
  const int index = dp_index(rank, shape), first = index * shape.tp;
  const Counts &one = all[static_cast<std::size_t>(first)],
               &other = all[static_cast<std::size_t>(rank)];
  if (one.sizes == other.sizes && one.values == other.values) return {};
  return "ranks " + std::to_string(first) + " and " + std::to_string(rank) +
         " work on the same samples, those of dp index " + std::to_string(index) +
         ", and their micro-batches differ in " +
         (one.sizes == other.sizes ? "values" : "number or shape") +
         ": give every rank of one dp index the same inputs, targets and sample numbers";
}

/// Hashes the hashes of values that are added one after the other.
class Hasher {
 public:
  void add(const void* data, std::size_t bytes) { hashes_.push_back(hash_bytes(data, bytes)); }
  void add(std::uint64_t number) { hashes_.push_back(number); }
  std::uint64_t result() const {
    return hash_bytes(hashes_.data(), hashes_.size() * sizeof(std::uint64_t));
  }

 private:
  std::vector<std::uint64_t> hashes_;
};

void add_shape(Hasher& hasher, const TensorView& view) {
  hasher.add(static_cast<std::uint64_t>(view.type));
  hasher.add(view.shape.begin(),
             static_cast<std::size_t>(view.shape.rank()) * sizeof(std::int64_t));
}

void add_values(Hasher& hasher, const TensorView& view) {
  constexpr std::size_t kMost = 64 << 10;
  const auto bytes = view.data == nullptr ? 0 : static_cast<std::size_t>(view.bytes());
  const auto* first = view.as<const std::byte>();
  if (view.type == DType::i32 || bytes <= 2 * kMost) return hasher.add(first, bytes);
  hasher.add(first, kMost);
  hasher.add(first + bytes - kMost, kMost);
}

}  // namespace

Totals tally(std::span<const Counts> all, const collective::MeshShape& shape, int dp_rank) {
  Totals totals;
  const int stage = shape.dp * shape.tp, last = (shape.pp - 1) * stage;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const Counts& counts = all[static_cast<std::size_t>(rank)];
    if (counts.batches == kRefused && totals.refused_by < 0) totals.refused_by = rank;
    totals.batches = std::max(totals.batches, counts.batches);
    if (counts.common != all.front().common && totals.differs < 0) totals.differs = rank;
    if (totals.mismatch.empty()) totals.mismatch = mismatch_of(all, shape, rank);
    if (rank % shape.tp != 0) continue;
    if (rank < stage && dp_index(rank, shape) < dp_rank) totals.first_sample += counts.samples;
    if (rank < stage) totals.samples += counts.samples;
    if (rank >= last) totals.targets += counts.targets;
  }
  if (totals.refused_by < 0) return totals;
  totals.mismatch.clear();  // a rank that refuses has sent no counts
  totals.differs = -1;
  return totals;
}

Totals exchange(const collective::Mesh& mesh, const Counts& mine) {
  const std::array<std::int64_t, kNumbers> sent = {mine.targets,
                                                   mine.samples,
                                                   mine.batches,
                                                   static_cast<std::int64_t>(mine.sizes),
                                                   static_cast<std::int64_t>(mine.values),
                                                   static_cast<std::int64_t>(mine.common)};
  const auto ranks = static_cast<std::size_t>(mesh.shape.ranks());
  std::vector<std::int64_t> numbers(sent.begin(), sent.end());
  numbers.resize(kNumbers * ranks);
  if (collective::Communicator* world = world_of(mesh))
    world->all_gather(std::span<const std::int64_t>(sent), numbers, {.purpose = kCount}).wait();
  std::vector<Counts> all;
  for (std::size_t at = 0; at < numbers.size(); at += kNumbers)
    all.push_back(
        {numbers[at], numbers[at + 1], numbers[at + 2], static_cast<std::uint64_t>(numbers[at + 3]),
         static_cast<std::uint64_t>(numbers[at + 4]), static_cast<std::uint64_t>(numbers[at + 5])});
  return tally(all, mesh.shape, mesh.dp_rank);
}

void fingerprint(std::span<const MicroBatch> micros, const collective::MeshShape& shape,
                 Counts& counts) {
  if (shape.tp == 1 && shape.pp == 1) return;
  Hasher sizes, values;
  for (const MicroBatch& micro : micros) {
    add_shape(sizes, micro.input);
    add_shape(sizes, micro.targets);
    sizes.add(micro.samples.size());
    add_values(values, micro.input);
    add_values(values, micro.targets);
    values.add(micro.samples.data(), micro.samples.size_bytes());
  }
  counts.sizes = sizes.result();
  counts.values = values.result();
}

collective::Communicator* world_of(const collective::Mesh& mesh) noexcept {
  for (collective::Communicator* group :
       {mesh.world.get(), mesh.dp.get(), mesh.tp.get(), mesh.pp.get()})
    if (group != nullptr) return group;
  return nullptr;
}

collective::Work sum_over_dp(const collective::Mesh& mesh, double& loss) {
  if (mesh.dp == nullptr) return {};
  return mesh.dp->all_reduce(std::span(&loss, 1), collective::Reduce::sum,
                             {.after = {}, .purpose = collective::Purpose::norm});
}

double loss_of_model(const collective::Mesh& mesh, double sum) {
  const auto from = [&sum](collective::Communicator* group, int root) {
    if (group == nullptr) return;
    group->broadcast(std::span(&sum, 1), root, {.after = {}, .purpose = collective::Purpose::norm})
        .wait();
  };
  from(mesh.pp.get(), mesh.shape.pp - 1);
  from(mesh.tp.get(), 0);
  return sum;
}

}  // namespace troupe::train::internal

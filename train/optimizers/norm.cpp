#include "troupe/train/optimizers/norm.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train {
namespace {

using internal::CountedRange;

/// Adds the squares of one unit's owned elements to `chunks`, by chunk. Each range keeps results
/// of its own until the device has written them, since two ranges may belong to one chunk.
class UnitSquares {
 public:
  UnitSquares(kernels::Device& device, const Store::Owned& owned, std::vector<CountedRange> counted)
      : counted_(std::move(counted)) {
    std::size_t places = 0;
    for (const CountedRange& each : counted_) places += chunks_of(each);
    squares_.resize(places);
    double* out = squares_.data();
    for (const CountedRange& each : counted_) {
      device.kernels().chunk_squares(device.compute(), {.n = each.range.count,
                                                        .chunk = kChunk,
                                                        .x = owned.gradients + each.range.first,
                                                        .out = out});
      out += chunks_of(each);
    }
  }
  /// Call it after the device's queue has been synchronised.
  void add_to(std::span<double> chunks) const {
    std::size_t next = 0;
    for (const CountedRange& each : counted_)
      for (std::size_t i = 0; i < chunks_of(each); ++i)
        chunks[static_cast<std::size_t>(each.chunk) + i] += squares_[next++];
  }

 private:
  static std::size_t chunks_of(const CountedRange& each) {
    return static_cast<std::size_t>((each.range.count + kChunk - 1) / kChunk);
  }
  std::vector<CountedRange> counted_;
  std::vector<double> squares_;
};

/// Returns the squares of the chunks that this rank owns, of all units in their order.
std::vector<double> own_squares(kernels::Device& device, Store& store, int tp_rank) {
  std::vector<UnitSquares> units;
  std::vector<std::size_t> chunks;
  for (int unit = 0; unit < static_cast<int>(store.index().units().size()); ++unit) {
    const Store::Owned owned = store.owned(unit);
    chunks.push_back(static_cast<std::size_t>(owned.range.count / kChunk));
    units.emplace_back(device, owned,
                       internal::counted_ranges(store.index(), unit, owned.range, tp_rank));
  }
  device.compute().synchronize();
  std::vector<double> squares;
  for (std::size_t u = 0; u < units.size(); ++u) {
    squares.resize(squares.size() + chunks[u]);
    units[u].add_to(std::span(squares).last(chunks[u]));
  }
  return squares;
}

/// Returns every rank's numbers, rank after rank.
std::vector<double> gather(collective::Communicator* group, std::vector<double> mine) {
  if (group == nullptr) return mine;
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group->size()));
  group->all_gather(mine, all, {.after = {}, .purpose = collective::Purpose::norm}).wait();
  return all;
}

/// Appends the elements [first, end) to `ranges`, cut so that each piece lies in one chunk or
/// consists of whole chunks.
void append(std::vector<CountedRange>& ranges, std::int64_t first, std::int64_t end) {
  while (first < end) {
    std::int64_t stop = first % kChunk == 0 ? end / kChunk * kChunk : 0;
    if (stop <= first) stop = std::min(end, (first / kChunk + 1) * kChunk);
    ranges.push_back({{first, stop - first}, first / kChunk});
    first = stop;
  }
}

}  // namespace

namespace internal {

std::vector<CountedRange> counted_ranges(const Index& index, int unit, const Range& owned,
                                         int tp_rank) {
  std::vector<CountedRange> ranges;
  std::int64_t next = owned.first;  // the slab is handled up to here
  for (const TensorId id : index.units().at(static_cast<std::size_t>(unit)).tensors) {
    const TensorPlace& tensor = index[id];
    // Replicated tensors are cut out on all tp indexes but 0, where they count once.
    if (tp_rank == 0 || tensor.shard.axis >= 0) continue;
    const std::int64_t first = std::clamp(tensor.offset, next, owned.end());
    append(ranges, next - owned.first, first - owned.first);
    next = std::clamp(tensor.offset + tensor.local.count(), first, owned.end());
  }
  append(ranges, next - owned.first, owned.count);
  return ranges;
}

std::vector<double> sums_of_units(const Index& index, int owners, std::span<const double> squares) {
  const std::size_t stride = squares.size() / static_cast<std::size_t>(owners);
  std::vector<double> sums;
  std::size_t first = 0;
  for (const UnitPlace& unit : index.units()) {
    const auto chunks = static_cast<std::size_t>(unit.size / kChunk / owners);
    double& sum = sums.emplace_back();
    for (std::size_t owner = 0; owner < static_cast<std::size_t>(owners); ++owner)
      for (const double square : squares.subspan(owner * stride + first, chunks)) sum += square;
    first += chunks;
  }
  return sums;
}

double add_units(std::span<const double> sums, std::size_t units) {
  double total = 0;
  for (std::size_t unit = 0; unit < units; ++unit)
    for (std::size_t at = unit; at < sums.size(); at += units) total += sums[at];
  return total;
}

}  // namespace internal

double global_norm(kernels::Device& device, Store& store, const NormGroups& groups) {
  const int tp_rank = groups.tp == nullptr ? 0 : groups.tp->rank();
  std::vector<double> squares = own_squares(device, store, tp_rank);
  int owners = 1;
  if (store.options().zero > 0 && store.index().dp() > 1) {
    owners = store.index().dp();
    squares = gather(groups.dp, std::move(squares));
  }
  const std::vector<double> sums = internal::sums_of_units(store.index(), owners, squares);
  return std::sqrt(internal::add_units(gather(groups.pp, gather(groups.tp, sums)), sums.size()));
}

float clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1.0 ? static_cast<float>(factor) : 1.0f;
}

}  // namespace troupe::train

#include "troupe/train/optimizers/norm.hpp"

#include <cmath>
#include <span>
#include <vector>

namespace troupe::train {
namespace {

/// Of the chunks that this rank owns: of all units in their order.
std::vector<double> own_squares(kernels::Device& device, Store& store) {
  std::vector<Store::Owned> owned;
  std::int64_t chunks = 0;
  for (int unit = 0; unit < static_cast<int>(store.index().units().size()); ++unit) {
    owned.push_back(store.owned(unit));
    chunks += owned.back().range.count / kChunk;
  }
  std::vector<double> squares(static_cast<std::size_t>(chunks));
  double* out = squares.data();
  for (const Store::Owned& part : owned) {
    device.kernels().chunk_squares(
        device.compute(),
        {.n = part.range.count, .chunk = kChunk, .x = part.gradients, .out = out});
    out += part.range.count / kChunk;
  }
  device.compute().synchronize();
  return squares;
}

/// `squares` has those of each rank one after the other, and a rank's by unit.
double sum_by_unit(const Index& index, int ranks, std::span<const double> squares) {
  const std::size_t stride = squares.size() / static_cast<std::size_t>(ranks);
  double total = 0;
  std::size_t first = 0;
  for (const UnitPlace& unit : index.units()) {
    const auto chunks = static_cast<std::size_t>(unit.size / kChunk / ranks);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
      for (const double square : squares.subspan(rank * stride + first, chunks)) total += square;
    first += chunks;
  }
  return total;
}

}  // namespace

double global_norm(kernels::Device& device, Store& store, collective::Communicator* dp) {
  std::vector<double> squares = own_squares(device, store);
  int ranks = 1;
  if (store.options().zero > 0 && store.index().dp() > 1) {
    ranks = store.index().dp();
    std::vector<double> all(squares.size() * static_cast<std::size_t>(ranks));
    dp->all_gather(squares, all, {.after = {}, .purpose = collective::Purpose::norm}).wait();
    squares = std::move(all);
  }
  return std::sqrt(sum_by_unit(store.index(), ranks, squares));
}

float clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1.0 ? static_cast<float>(factor) : 1.0f;
}

}  // namespace troupe::train

#include "troupe/actors/collective/internal/reduction.hpp"

#include "troupe/kernels/half/half.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace troupe::collective::internal {
namespace {

using Parts = std::vector<const std::byte*>;

/// Elements of a block. The compiler vectorises a loop with a constant trip count at -O2 already.
constexpr std::uint64_t kWidth = 16;

/// Reads and writes elements of a storage type by memcpy, since nothing needs to be aligned. `Sum`
/// is the type in which they are added.
template <class T>
struct Plain {
  using Sum = T;
  static constexpr std::uint64_t size = sizeof(T);
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, size);
    return value;
  }
  static void store(std::byte* to, T value) { std::memcpy(to, &value, size); }
};

template <float (*widen)(std::uint16_t) noexcept, std::uint16_t (*narrow)(float) noexcept>
struct Half {
  using Sum = float;
  static constexpr std::uint64_t size = 2;
  static float load(const std::byte* from) { return widen(Plain<std::uint16_t>::load(from)); }
  static void store(std::byte* to, float value) { Plain<std::uint16_t>::store(to, narrow(value)); }
};

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <Reduce reduce, class T>
T combined(T total, T next) {
  if constexpr (reduce == Reduce::max) return next > total || is_nan(next) ? next : total;
  if constexpr (reduce == Reduce::min) return next < total || is_nan(next) ? next : total;
  return static_cast<T>(total + next);
}

template <Reduce reduce, class Storage>
void blocks(std::byte* out, const Parts& parts, std::uint64_t count) {
  using Sum = typename Storage::Sum;
  constexpr std::uint64_t size = Storage::size;
  [[maybe_unused]] const Sum factor = static_cast<Sum>(Sum{1} / static_cast<Sum>(parts.size()));
  const auto finished = [&](Sum total) {
    if constexpr (reduce == Reduce::mean) return static_cast<Sum>(total * factor);
    return total;
  };
  // A store through std::byte* may alias anything, also the list of parts. The compiler would load
  // parts[0] and parts[1] again after each store, so they are copied to locals.
  const std::byte* const first = parts[0];
  const std::byte* const second = parts[parts.size() > 1 ? 1 : 0];
  const std::size_t all = parts.size();
  std::uint64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Sum total[kWidth];
    const auto add = [&](const std::byte* part) {
      for (std::uint64_t j = 0; j < kWidth; ++j)
        total[j] = combined<reduce>(total[j], Storage::load(part + (i + j) * size));
    };
    for (std::uint64_t j = 0; j < kWidth; ++j) total[j] = Storage::load(first + (i + j) * size);
    if (all > 1) add(second);
    for (std::size_t p = 2; p < all; ++p) add(parts[p]);
    for (std::uint64_t j = 0; j < kWidth; ++j)
      Storage::store(out + (i + j) * size, finished(total[j]));
  }
  for (; i < count; ++i) {
    Sum total = Storage::load(parts[0] + i * size);
    for (std::size_t p = 1; p < parts.size(); ++p)
      total = combined<reduce>(total, Storage::load(parts[p] + i * size));
    Storage::store(out + i * size, finished(total));
  }
}

/// Reduces with one storage type. `Added` is the type for sums: for integers the unsigned one,
/// whose sums wrap without undefined behaviour.
template <class Storage, class Added = Storage>
void of_type(Reduce reduce, std::byte* out, const Parts& parts, std::uint64_t count) {
  switch (reduce) {
    case Reduce::sum: blocks<Reduce::sum, Added>(out, parts, count); break;
    case Reduce::mean: blocks<Reduce::mean, Added>(out, parts, count); break;
    case Reduce::max: blocks<Reduce::max, Storage>(out, parts, count); break;
    case Reduce::min: blocks<Reduce::min, Storage>(out, parts, count); break;
  }
}

}  // namespace

void reduce_parts(DType type, Reduce reduce, std::byte* out, const Parts& parts,
                  std::uint64_t count) {
  using kernels::from_bf16, kernels::from_f16, kernels::to_bf16, kernels::to_f16;
  switch (type) {
    case DType::f32: of_type<Plain<float>>(reduce, out, parts, count); break;
    case DType::f64: of_type<Plain<double>>(reduce, out, parts, count); break;
    case DType::bf16: of_type<Half<from_bf16, to_bf16>>(reduce, out, parts, count); break;
    case DType::f16: of_type<Half<from_f16, to_f16>>(reduce, out, parts, count); break;
    case DType::i32:
      of_type<Plain<std::int32_t>, Plain<std::uint32_t>>(reduce, out, parts, count);
      break;
    case DType::i64:
      of_type<Plain<std::int64_t>, Plain<std::uint64_t>>(reduce, out, parts, count);
      break;
    case DType::u8: of_type<Plain<std::uint8_t>>(reduce, out, parts, count); break;
  }
}

}  // namespace troupe::collective::internal

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

/// What reduce_running() and reduce_last() are given.
struct Step {
  std::byte* out;
  const std::byte* before;  ///< null: none
  const Parts& parts;
  std::uint64_t count;
  int ranks;  ///< of the whole reduction; 0: this step is not the last one
};

/// One step: `Out` is how results are stored, `divides` whether they are divided by the ranks.
template <Reduce reduce, class Storage, class Out, bool divides>
void step_blocks(const Step& s) {
  using Sum = typename Storage::Sum;
  const Sum factor = divides ? static_cast<Sum>(Sum{1} / static_cast<Sum>(s.ranks)) : Sum{1};
  const std::size_t all = s.parts.size();
  const std::byte* const* parts = s.parts.data();
  const auto add_and_store = [&](std::uint64_t i, auto width) {
    constexpr std::uint64_t n = decltype(width)::value;
    Sum total[n];
    std::size_t p = 0;
    if (s.before != nullptr) {
      for (std::uint64_t j = 0; j < n; ++j)
        total[j] = Plain<Sum>::load(s.before + (i + j) * sizeof(Sum));
    } else {
      for (std::uint64_t j = 0; j < n; ++j)
        total[j] = Storage::load(parts[0] + (i + j) * Storage::size);
      p = 1;
    }
    for (; p < all; ++p) {
      const std::byte* const part = parts[p] + i * Storage::size;
      for (std::uint64_t j = 0; j < n; ++j)
        total[j] = combined<reduce>(total[j], Storage::load(part + j * Storage::size));
    }
    for (std::uint64_t j = 0; j < n; ++j) {
      if constexpr (divides) total[j] = static_cast<Sum>(total[j] * factor);
      Out::store(s.out + (i + j) * Out::size, total[j]);
    }
  };
  std::uint64_t i = 0;
  for (; i + kWidth <= s.count; i += kWidth)
    add_and_store(i, std::integral_constant<std::uint64_t, kWidth>());
  for (; i < s.count; ++i) add_and_store(i, std::integral_constant<std::uint64_t, 1>());
}

template <Reduce reduce, class Storage>
void step_with(const Step& s) {
  using Running = Plain<typename Storage::Sum>;
  if (s.ranks == 0)
    step_blocks<reduce == Reduce::mean ? Reduce::sum : reduce, Storage, Running, false>(s);
  else
    step_blocks<reduce == Reduce::mean ? Reduce::sum : reduce, Storage, Storage,
                reduce == Reduce::mean>(s);
}

template <class Storage, class Added = Storage>
void step_of_type(Reduce reduce, const Step& s) {
  switch (reduce) {
    case Reduce::sum: step_with<Reduce::sum, Added>(s); break;
    case Reduce::mean: step_with<Reduce::mean, Added>(s); break;
    case Reduce::max: step_with<Reduce::max, Storage>(s); break;
    case Reduce::min: step_with<Reduce::min, Storage>(s); break;
  }
}

void make_step(DType type, Reduce reduce, const Step& s) {
  using kernels::from_bf16, kernels::from_f16, kernels::to_bf16, kernels::to_f16;
  switch (type) {
    case DType::f32: step_of_type<Plain<float>>(reduce, s); break;
    case DType::f64: step_of_type<Plain<double>>(reduce, s); break;
    case DType::bf16: step_of_type<Half<from_bf16, to_bf16>>(reduce, s); break;
    case DType::f16: step_of_type<Half<from_f16, to_f16>>(reduce, s); break;
    case DType::i32: step_of_type<Plain<std::int32_t>, Plain<std::uint32_t>>(reduce, s); break;
    case DType::i64: step_of_type<Plain<std::int64_t>, Plain<std::uint64_t>>(reduce, s); break;
    case DType::u8: step_of_type<Plain<std::uint8_t>>(reduce, s); break;
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

std::uint64_t running_bytes(DType type) noexcept {
  if (type == DType::bf16 || type == DType::f16) return sizeof(float);
  return static_cast<std::uint64_t>(kernels::size_of(type));
}

void reduce_running(DType type, Reduce reduce, std::byte* running, const std::byte* before,
                    const Parts& parts, std::uint64_t count) {
  make_step(type, reduce, {running, before, parts, count, 0});
}

void reduce_last(DType type, Reduce reduce, std::byte* out, const std::byte* before,
                 const Parts& parts, std::uint64_t count, int ranks) {
  make_step(type, reduce, {out, before, parts, count, ranks});
}

}  // namespace troupe::collective::internal

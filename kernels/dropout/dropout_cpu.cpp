#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels::cpu {
namespace {
using internal::of_type;
using internal::pointer;

// Blocks of four words that are computed together. g++ unrolls loops of 16 or fewer iterations
// before it vectorises, and then it does not vectorise them.
constexpr std::int64_t kBlocks = 32;
constexpr std::uint64_t kLow = 0xffffffffu;

/// Philox4x32-10 of blocks first, first + 1, …: words[4 * i + j] is word j of block first + i. The
/// numbers are those of philox_bits. Lanes are 64 bits wide, since the products are.
TROUPE_INLINE void philox_blocks(std::uint32_t* __restrict words, std::uint64_t first,
                                 std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(i);
    c0[i] = block & kLow;
    c1[i] = block >> 32;
    c2[i] = stream & kLow;
    c3[i] = stream >> 32;
  }
  std::uint64_t key0 = seed & kLow, key1 = seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * static_cast<std::uint32_t>(c0[i]);
      const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * static_cast<std::uint32_t>(c2[i]);
      c0[i] = (b >> 32) ^ c1[i] ^ key0;
      c1[i] = b & kLow;
      c2[i] = (a >> 32) ^ c3[i] ^ key1;
      c3[i] = a & kLow;
    }
    key0 = (key0 + 0x9E3779B9u) & kLow;
    key1 = (key1 + 0xBB67AE85u) & kLow;
  }
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = static_cast<std::uint32_t>(c0[i]);
    words[4 * i + 1] = static_cast<std::uint32_t>(c1[i]);
    words[4 * i + 2] = static_cast<std::uint32_t>(c2[i]);
    words[4 * i + 3] = static_cast<std::uint32_t>(c3[i]);
  }
}

/// Drops elements of one row, whose first element has the number `index`.
template <class T>
TROUPE_INLINE void drop_row(const Dropout& o, const T* in, T* out, std::uint64_t index) {
  const auto limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(o.p) * 0x1.0p24));
  const T factor = static_cast<T>(1.0 / (1.0 - static_cast<double>(o.p)));
  std::uint32_t words[4 * kBlocks];
  for (std::int64_t c = 0; c < o.columns;) {
    const std::uint64_t from = index + static_cast<std::uint64_t>(c);
    philox_blocks(words, from / 4, o.seed, o.stream);
    const auto skip = static_cast<std::int64_t>(from % 4);
    const std::int64_t n = std::min(4 * kBlocks - skip, o.columns - c);
    const std::uint32_t* word = words + skip;
    for (std::int64_t i = 0; i < n; ++i) {
      const T kept = in[c + i] * factor;
      out[c + i] = (word[i] >> 8) >= limit ? kept : T(0);
    }
    c += n;
  }
}

template <class T>
TROUPE_INLINE void drop_rows(const Dropout& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const std::int64_t at = o.first_row + r;
    const std::int64_t sample = o.samples == nullptr ? at / o.time : o.samples[at / o.time];
    const std::int64_t index = (sample * o.time + at % o.time) * o.all_columns + o.first_column;
    drop_row(o, pointer<T>(o.in) + r * o.columns, pointer<T>(o.out) + r * o.columns,
             static_cast<std::uint64_t>(index));
  }
}
TROUPE_KERNEL void drop(const Dropout& o, float, std::int64_t first, std::int64_t end) {
  drop_rows<float>(o, first, end);
}
void drop(const Dropout& o, double, std::int64_t first, std::int64_t end) {
  drop_rows<double>(o, first, end);
}

}  // namespace

void dropout(Queue& queue, const Dropout& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, internal::grain(o.columns, internal::kDear),
                       [&](std::int64_t first, std::int64_t end) { drop(o, type, first, end); });
  });
}

}  // namespace troupe::kernels::cpu

// Tests every operation on every type, at odd sizes, on unaligned memory, between 2 to 5 ranks;
// and the counters of operations.
#include "tests/actors/contract.hpp"

#include "troupe/kernels/half/half.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::collective {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                          DType::i32, DType::i64, DType::u8};

void store(std::byte* to, DType type, double value) {
  const auto put = [to](auto number) { std::memcpy(to, &number, sizeof number); };
  switch (type) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::f64: return put(value);
    case DType::bf16: return put(kernels::to_bf16(static_cast<float>(value)));
    case DType::f16: return put(kernels::to_f16(static_cast<float>(value)));
    case DType::i32: return put(static_cast<std::int32_t>(value));
    case DType::i64: return put(static_cast<std::int64_t>(value));
    case DType::u8: return put(static_cast<std::uint8_t>(value));
  }
}
double load(const std::byte* from, DType type) {
  const auto get = [from](auto number) {
    std::memcpy(&number, from, sizeof number);
    return number;
  };
  switch (type) {
    case DType::f32: return get(0.0f);
    case DType::f64: return get(0.0);
    case DType::bf16: return kernels::from_bf16(get(std::uint16_t{}));
    case DType::f16: return kernels::from_f16(get(std::uint16_t{}));
    case DType::i32: return get(std::int32_t{});
    case DType::i64: return static_cast<double>(get(std::int64_t{}));
    case DType::u8: return get(std::uint8_t{});
  }
  return 0;
}

/// Numbers of a type, `shift` bytes after an aligned address.
class Numbers {
 public:
  Numbers(DType type, std::int64_t count, std::size_t shift)
      : type_(type), count_(count), shift_(shift), memory_(bytes(count) + shift + 1) {
    memory_.back() = std::byte{77};
  }
  Buffer buffer() { return {memory_.data() + shift_, type_, count_}; }
  double operator[](std::int64_t i) const {
    return load(memory_.data() + shift_ + bytes(i), type_);
  }
  void set(std::int64_t i, double value) {
    store(memory_.data() + shift_ + bytes(i), type_, value);
  }
  bool wrote_past_the_end() const { return memory_.back() != std::byte{77}; }

 private:
  std::size_t bytes(std::int64_t n) const {
    return static_cast<std::size_t>(n * kernels::size_of(type_));
  }
  DType type_;
  std::int64_t count_;
  std::size_t shift_;
  std::vector<std::byte> memory_;
};

// The numbers are so small that sums over five ranks are exact in every type.
double element(int rank, std::int64_t i) {
  return 7.0 * rank + static_cast<double>(i % 11);
}
double expected(Reduce reduce, int size, std::int64_t i, DType type) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += element(r, i);
  if (reduce == Reduce::sum) return sum;
  if (reduce == Reduce::max) return element(size - 1, i);
  if (reduce == Reduce::min) return element(0, i);
  std::byte rounded[8];
  const double mean = type == DType::f64
                          ? sum * (1.0 / size)
                          : static_cast<float>(sum) * (1.0f / static_cast<float>(size));
  store(rounded, type, mean);
  return load(rounded, type);
}

class Types : public OnEveryBackEnd {
 protected:
  struct Case {
    int size;
    DType type;
    std::int64_t count;
    std::size_t shift;
    std::string text() const {
      return std::string(kernels::name_of(type)) + " x " + std::to_string(count) + ", " +
             std::to_string(size) + " ranks, " + std::to_string(shift) + " bytes off";
    }
  };
  void on_every(const std::function<void(Communicator&, const Case&)>& f) {
    for (const int size : {2, 3, 4, 5}) {
      Group group = make(size);
      expect_none(on_all(group, [&](Communicator& c) {
        for (const DType type : kAll)
          for (const std::int64_t count : {0, 1, 31, 33, 1025})
            for (const std::size_t shift : {0u, 1u}) f(c, {size, type, count, shift});
      }));
    }
  }
};

TEST_P(Types, AllReduce) {
  on_every([ordered = GetParam().ordered](Communicator& c, const Case& with) {
    for (const Reduce reduce : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min}) {
      if (reduce == Reduce::mean && with.type >= DType::i32) continue;
      Numbers x(with.type, with.count, with.shift);
      for (std::int64_t i = 0; i < with.count; ++i) x.set(i, element(c.rank(), i));
      c.all_reduce(x.buffer(), reduce).wait();
      for (std::int64_t i = 0; i < with.count; ++i) {
        const double right = expected(reduce, with.size, i, with.type);
        const bool exact = ordered || reduce != Reduce::mean;  // else each part is divided
        ASSERT_NEAR(x[i], right, exact ? 0 : right * 0.02) << with.text() << ": " << i;
      }
      ASSERT_FALSE(x.wrote_past_the_end()) << with.text();
    }
  });
}

TEST_P(Types, ReduceScatterAndAllGather) {
  on_every([](Communicator& c, const Case& with) {
    const std::int64_t all = with.count * with.size;
    Numbers in(with.type, all, with.shift), part(with.type, with.count, with.shift),
        out(with.type, all, with.shift);
    for (std::int64_t i = 0; i < all; ++i) in.set(i, element(c.rank(), i));
    c.reduce_scatter(in.buffer(), part.buffer()).wait();
    for (std::int64_t i = 0; i < with.count; ++i)
      ASSERT_EQ(part[i], expected(Reduce::sum, with.size, c.rank() * with.count + i, with.type))
          << with.text() << ": " << i;
    c.all_gather(part.buffer(), out.buffer()).wait();
    for (std::int64_t i = 0; i < all; ++i)
      ASSERT_EQ(out[i], expected(Reduce::sum, with.size, i, with.type)) << with.text() << ": " << i;
    ASSERT_FALSE(part.wrote_past_the_end() || out.wrote_past_the_end()) << with.text();
  });
}

TEST_P(Types, PartsInPlace) {
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<float> x(3 * 2000);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(element(c.rank(), static_cast<std::int64_t>(i)));
    const auto part = std::span(x).subspan(static_cast<std::size_t>(c.rank()) * 2000, 2000);
    c.reduce_scatter(x, part).wait();
    c.all_gather(part, x).wait();
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(x[i], expected(Reduce::sum, 3, static_cast<std::int64_t>(i), DType::f32)) << i;
  }));
}

TEST_P(Types, BroadcastAndExchange) {
  on_every([](Communicator& c, const Case& with) {
    Numbers x(with.type, with.count, with.shift), y(with.type, with.count, with.shift);
    for (std::int64_t i = 0; i < with.count; ++i) x.set(i, element(c.rank(), i));
    const int right = (c.rank() + 1) % with.size, left = (c.rank() + with.size - 1) % with.size;
    c.exchange(x.buffer(), right, y.buffer(), left).wait();
    for (std::int64_t i = 0; i < with.count; ++i)
      ASSERT_EQ(y[i], element(left, i)) << with.text() << ": " << i;
    c.broadcast(x.buffer(), with.size - 1).wait();
    for (std::int64_t i = 0; i < with.count; ++i)
      ASSERT_EQ(x[i], element(with.size - 1, i)) << with.text() << ": " << i;
    ASSERT_FALSE(x.wrote_past_the_end() || y.wrote_past_the_end()) << with.text();
  });
}

// A single rounding shows: 256 + 1 is 256 in bfloat16, and 2048 + 1 is 2048 in binary16.
TEST_P(Types, SixteenBitSumsRoundOnce) {
  if (!GetParam().ordered) GTEST_SKIP() << "it rounds at every step";
  for (const int size : {3, 5}) {
    Group group = make(size);
    expect_none(on_all(group, [&](Communicator& c) {
      for (const auto& [type, great] : {std::pair(DType::bf16, 256.0), {DType::f16, 2048.0}}) {
        Numbers x(type, 40, 0);
        for (std::int64_t i = 0; i < 40; ++i) x.set(i, c.rank() == 0 ? great : 1.0);
        c.all_reduce(x.buffer()).wait();
        for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(x[i], great + size - 1);
      }
    }));
  }
}

TEST_P(Types, ANanIsTheLeastAndTheGreatest) {
  if (!GetParam().ordered) GTEST_SKIP() << "it may drop a NaN";
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    for (const Reduce reduce : {Reduce::max, Reduce::min})
      for (int whose = 0; whose < 3; ++whose) {
        std::vector<float> x(20, static_cast<float>(c.rank()));
        if (c.rank() == whose) x[17] = std::numeric_limits<float>::quiet_NaN();
        c.all_reduce(x, reduce).wait();
        EXPECT_TRUE(std::isnan(x[17]));
        EXPECT_EQ(x[16], reduce == Reduce::max ? 2.0f : 0.0f);
      }
  }));
}

TEST_P(Types, IntegersWrapAndKeepTheirSigns) {
  Group group = make(2);
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<std::int64_t> x = {std::numeric_limits<std::int64_t>::max(), c.rank() - 5};
    std::vector<std::int32_t> least = {c.rank() == 0 ? -3 : 4};
    c.all_reduce(x).wait();
    EXPECT_EQ(x, (std::vector<std::int64_t>{-2, -9}));
    c.all_reduce(least, Reduce::min).wait();
    EXPECT_EQ(least[0], -3);
  }));
}

TEST_P(Types, TrafficIsThatOfTheFormulas) {
  for (const std::uint64_t size : {2u, 3u, 4u, 5u}) {
    Group group = make(static_cast<int>(size));
    const std::uint64_t n = 60 * size, bytes = 4 * n;  // divisible, so the formulas are exact
    expect_none(on_all(group, [&](Communicator& c) {
      std::vector<float> x(n), part(n / size);
      const int ranks = c.size(), right = (c.rank() + 1) % ranks,
                left = (c.rank() + ranks - 1) % ranks;
      for (int round = 0; round < 3; ++round) {
        c.all_reduce(x).wait();
        c.reduce_scatter(x, part).wait();
        c.all_gather(part, x).wait();
        c.broadcast(x, 1).wait();
        c.exchange(part, right, std::span(x).first(part.size()), left).wait();
        c.barrier();
        // counted apart: what a step sends beside its payload
        std::int64_t targets = 1;
        c.all_reduce(std::span(&targets, 1), Reduce::sum, {.purpose = Purpose::count}).wait();
        c.all_gather(part, x, {.purpose = Purpose::norm}).wait();
        c.all_reduce(x, Reduce::sum, {.padding = static_cast<std::int64_t>(size)}).wait();
      }
      const Traffic moved = c.traffic();
      EXPECT_EQ(moved.all_reduce,
                3 * (2 * (size - 1) * bytes / size + 2 * (size - 1) * (bytes - 4 * size) / size));
      EXPECT_EQ(moved.reduce_scatter, 3 * (size - 1) * bytes / size);
      EXPECT_EQ(moved.all_gather, 3 * (size - 1) * bytes / size);
      EXPECT_EQ(moved.broadcast, c.rank() == 1 ? 3 * (size - 1) * bytes : 0);
      EXPECT_EQ(moved.send, 3 * bytes / size);
      EXPECT_EQ(moved.count, 3 * 2 * (size - 1) * 8 / size);
      EXPECT_EQ(moved.norm, 3 * (size - 1) * bytes / size);
      EXPECT_EQ(moved.padding, 3 * 2 * (size - 1) * 4);
      EXPECT_EQ(moved.payload(), moved.all_reduce + moved.reduce_scatter + moved.all_gather +
                                     moved.broadcast + moved.send);
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Collective, Types, kBackEnds, name_of_back_end);

}  // namespace
}  // namespace troupe::collective

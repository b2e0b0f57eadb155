// Every operation at odd sizes: f32 against f64, equal bits for 1, 2 and 3 threads and for
// misaligned pointers, nothing written outside.
#include "testing.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"

#include <deque>

namespace troupe::kernels {
namespace {

/// One run: hands out memory, and collects what the operation has written.
template <class T>
class Bench {
 public:
  Bench(Queue& queue, std::int64_t rows, std::int64_t columns, std::size_t offset)
      : queue(queue), rows(rows), columns(columns), n(rows * columns), offset_(offset) {}
  T* random(std::int64_t count, double scale = 2) {
    return add(randoms<T>(count, 100 + memory_.size(), scale));
  }
  T* filled(std::int64_t count, T value = T(0)) {
    return add(std::vector<T>(static_cast<std::size_t>(count), value));
  }
  /// Everything that was handed out, in order.
  std::vector<T> results() {
    std::vector<T> all;
    for (Guarded<T>& memory : memory_) {
      const auto values = memory.values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Queue& queue;
  const std::int64_t rows, columns, n;

 private:
  T* add(std::vector<T> values) { return memory_.emplace_back(std::move(values), offset_).data(); }
  std::size_t offset_;
  std::deque<Guarded<T>> memory_;
};

template <class T>
void run_activation(Bench<T>& b, Activation activation) {
  T *in = b.random(b.n, 5), *dout = b.random(b.n), *out = b.filled(b.n), *din = b.random(b.n);
  cpu::activate(b.queue, {type_of<T>, activation, b.n, in, out});
  cpu::activate_backward(b.queue, {type_of<T>, activation, b.n, in, dout, din, true});
}
template <class T>
void run_gated(Bench<T>& b) {
  T *in = b.random(2 * b.n, 5), *dout = b.random(b.n), *out = b.filled(b.n),
    *din = b.filled(2 * b.n);
  const GatedSilu o{type_of<T>,    b.rows, b.columns, in,  in + b.columns,
                    2 * b.columns, out,    dout,      din, din + b.columns};
  cpu::gated_silu(b.queue, o);
  cpu::gated_silu_backward(b.queue, o);
}
template <class T>
void run_norm(Bench<T>& b, bool rms) {
  T *in = b.random(b.n), *weight = b.random(b.columns), *bias = b.random(b.columns),
    *out = b.filled(b.n);
  T *mean = b.filled(b.rows), *rstd = b.filled(b.rows), *dout = b.random(b.n), *din = b.random(b.n);
  T *dweight = b.random(b.columns), *dbias = b.random(b.columns);
  const Norm o{type_of<T>,           rms, 1e-5f, b.rows, b.columns, in, weight,
               rms ? nullptr : bias, out, mean,  rstd};
  const NormBackward back{o, dout, din, true, dweight, rms ? nullptr : dbias};
  cpu::norm(b.queue, o);
  cpu::norm_backward_input(b.queue, back);
  cpu::norm_backward_weight(b.queue, back);
}
template <class T>
void run_rope(Bench<T>& b) {
  T* x = b.random(b.n * 6);
  cpu::rope(b.queue, {type_of<T>, b.rows, 7, b.columns, 6, b.columns * 6, 3, 10000.0f, false, x});
}
template <class T>
void run_loss(Bench<T>& b) {
  if (b.columns == 0) return;
  T *logits = b.random(b.n, 5), *losses = b.filled(b.rows), *apart = b.random(b.n, 5);
  T *top = b.filled(b.rows), *sum = b.filled(b.rows), *target = b.filled(b.rows);
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < b.rows; ++r)
    targets.push_back(r % 3 == 2 ? kIgnore : static_cast<std::int32_t>(r * 7 % b.columns));
  CrossEntropy o{type_of<T>, b.rows, 0,      b.columns, b.columns, logits, targets.data(),
                 top,        sum,    target, losses,    true,      0.125};
  cpu::cross_entropy(b.queue, o);
  o.logits = apart;
  cpu::cross_entropy_stats(b.queue, o);
  cpu::cross_entropy_finish(b.queue, o);
}
template <class T>
void run_dropout(Bench<T>& b) {
  T *in = b.random(b.n), *out = b.filled(b.n);
  cpu::dropout(b.queue,
               {type_of<T>, 0.25f, 3, 4, b.rows, b.columns, nullptr, 1, 5, b.columns + 9, in, out});
}
template <class T>
void run_images(Bench<T>& b) {
  T *in = b.random(2 * 3 * b.n), *matrix = b.filled(2 * b.n * 27), *back = b.filled(2 * 3 * b.n);
  Im2col o{type_of<T>, 2, 3, b.rows, b.columns, 3, 1, 1, in, matrix};
  cpu::im2col(b.queue, o);
  o.in = matrix;
  o.out = back;
  cpu::col2im(b.queue, o);
}
template <class T>
void run_pool(Bench<T>& b) {
  const std::int64_t places = 3 * (b.rows / 2) * (b.columns / 2);
  T *in = b.random(3 * b.n), *out = b.filled(places), *dout = b.random(places),
    *din = b.filled(3 * b.n);
  Guarded<std::int32_t> index(std::vector<std::int32_t>(static_cast<std::size_t>(places)));
  const MaxPool o{type_of<T>, 3, b.rows, b.columns, 2, in, out, index.data(), dout, din};
  cpu::max_pool(b.queue, o);
  cpu::max_pool_backward(b.queue, o);
}
template <class T>
void run_transpose(Bench<T>& b) {
  T *in = b.random(2 * b.n), *out = b.filled(2 * b.n);
  cpu::transpose(b.queue, {type_of<T>, 2, b.rows, b.columns, 1, in, out});
}

struct Operation {
  const char* name;
  void (*single)(Bench<float>&);
  void (*twice)(Bench<double>&);
};
#define OPERATION(name, call) {name, [](Bench<float>& b) { call; }, [](Bench<double>& b) { call; }}
const Operation kOperations[] = {
    OPERATION("relu", run_activation(b, Activation::relu)),
    OPERATION("gelu", run_activation(b, Activation::gelu)),
    OPERATION("silu", run_activation(b, Activation::silu)),
    OPERATION("gated_silu", run_gated(b)),
    OPERATION("layer_norm", run_norm(b, false)),
    OPERATION("rms_norm", run_norm(b, true)),
    OPERATION("rope", run_rope(b)),
    OPERATION("cross_entropy", run_loss(b)),
    OPERATION("dropout", run_dropout(b)),
    OPERATION("images", run_images(b)),
    OPERATION("max_pool", run_pool(b)),
    OPERATION("transpose", run_transpose(b)),
};
#undef OPERATION

void PrintTo(const Operation& operation, std::ostream* out) {
  *out << operation.name;
}

constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {0, 33}, {7, 0}, {1, 1}, {3, 31}, {5, 33}, {2, 1025}, {1025, 3}, {33, 64}};

template <class T>
std::vector<T> results(void (*run)(Bench<T>&), std::pair<std::int64_t, std::int64_t> shape,
                       int threads, std::size_t offset) {
  SplitQueue queue(threads);
  Bench<T> bench(queue, shape.first, shape.second, offset);
  run(bench);
  return bench.results();
}

class Sizes : public testing::TestWithParam<Operation> {};

TEST_P(Sizes, SingleAgreesWithDouble) {
  // 1e-4: backward through a norm of three columns loses three digits
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
    const auto a = results(GetParam().single, shape, 1, 0);
    const auto b = results(GetParam().twice, shape, 1, 0);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(a[i] == b[i] || std::abs(a[i] - b[i]) < 1e-4 * (1 + std::abs(b[i])))
          << i << ": " << a[i] << " and " << b[i];
  }
}

TEST_P(Sizes, ThreadsAndAlignmentChangeNoBit) {
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
    const auto one = results(GetParam().single, shape, 1, 0);
    const auto twice = results(GetParam().twice, shape, 1, 0);
    for (const int threads : {1, 2, 3})
      for (const std::size_t offset : {0, 1}) {
        EXPECT_TRUE(one == results(GetParam().single, shape, threads, offset))
            << threads << " threads, offset " << offset;
        EXPECT_TRUE(twice == results(GetParam().twice, shape, threads, offset))
            << threads << " threads, offset " << offset;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Sizes, testing::ValuesIn(kOperations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::kernels

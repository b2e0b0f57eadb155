#include "tests/gpu/bench/cases.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {
namespace {

using namespace kernels;

/// The arguments that all cases share. It is a value, so that a case may outlive the function
/// that made it.
struct Kit {
  Device* device = nullptr;
  Sizes sizes;
  DType type = DType::f32;
  double size = 4;               ///< bytes of an element
  std::int64_t rows = 0, c = 0;  ///< tokens and channels

  /// Returns a function that enqueues the operation each time it is called.
  template <class Operation>
  std::function<void()> calls(void (*Kernels::*operation)(Queue&, const Operation&),
                              const Operation& o) const {
    return [on = device, operation, o] { (on->kernels().*operation)(on->compute(), o); };
  }
  template <class Operation>
  Case moves(double moved, void (*Kernels::*operation)(Queue&, const Operation&),
             const Operation& o) const {
    return {.call = calls(operation, o), .bytes = moved};
  }
};
using List = std::vector<NamedCase>;

double real(std::int64_t n) {
  return static_cast<double>(n);
}

void push(List& list, std::string name, std::function<Case(Room&)> make) {
  list.push_back({std::move(name), std::move(make)});
}

Case multiplies(const Kit& k, const Gemm& o) {
  Case made{.call = k.calls(&Kernels::gemm, o), .flops = 2.0 * real(o.m) * real(o.n) * real(o.k)};
  made.product = o;
  made.product->bias = nullptr;
  made.product->aux = nullptr;
  made.product->activation = Activation::none;
  made.product->activation_backward = false;
  made.is_judged = o.bias == nullptr && o.activation == Activation::none;
  return made;
}
/// The product y = x w^T of a linear layer, and its two gradients.
Gemm forward(const Kit& k, Room& room, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = k.rows;
  return {.type = k.type,
          .c_type = k.type,
          .b_op = Op::transpose,
          .m = rows,
          .n = out,
          .k = in,
          .a = room.random(rows * in),
          .lda = in,
          .b = room.random(out * in),
          .ldb = in,
          .c = room.zeros(rows * out, k.type),
          .ldc = out};
}
Gemm input_gradient(const Kit& k, Room& room, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = k.rows;
  return {.type = k.type,
          .c_type = k.type,
          .m = rows,
          .n = in,
          .k = out,
          .a = room.random(rows * out),
          .lda = out,
          .b = room.random(out * in),
          .ldb = in,
          .c = room.zeros(rows * in, k.type),
          .ldc = in};
}
Gemm weight_gradient(const Kit& k, Room& room, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = k.rows;
  return {.type = k.type,
          .c_type = DType::f32,
          .a_op = Op::transpose,
          .m = out,
          .n = in,
          .k = rows,
          .a = room.random(rows * out),
          .lda = out,
          .b = room.random(rows * in),
          .ldb = in,
          .beta = 1,
          .c = room.zeros(out * in, DType::f32),
          .ldc = in};
}
void add_linear(List& list, const Kit& k, const std::string& name, std::int64_t in,
                std::int64_t out) {
  push(list, "gemm." + name, [=](Room& room) { return multiplies(k, forward(k, room, in, out)); });
  push(list, "gemm." + name + ".input_gradient",
       [=](Room& room) { return multiplies(k, input_gradient(k, room, in, out)); });
  push(list, "gemm." + name + ".weight_gradient",
       [=](Room& room) { return multiplies(k, weight_gradient(k, room, in, out)); });
}
void add_products(List& list, const Kit& k) {
  const std::int64_t c = k.c;
  add_linear(list, k, "qkv", c, 3 * c);
  add_linear(list, k, "projection", c, c);
  add_linear(list, k, "up", c, 4 * c);
  add_linear(list, k, "down", 4 * c, c);
  add_linear(list, k, "head", c, k.sizes.vocabulary);
  push(list, "gemm.qkv.bias", [=](Room& room) {
    Gemm o = forward(k, room, c, 3 * c);
    o.bias = room.random(3 * c);
    return multiplies(k, o);
  });
  push(list, "gemm.up.bias_gelu", [=](Room& room) {
    Gemm o = forward(k, room, c, 4 * c);
    o.bias = room.random(4 * c);
    o.activation = Activation::gelu;
    o.aux = room.zeros(k.rows * 4 * c, k.type);
    return multiplies(k, o);
  });
  push(list, "gemm.down.input_gradient_gelu", [=](Room& room) {
    Gemm o = input_gradient(k, room, 4 * c, c);
    o.activation = Activation::gelu;
    o.activation_backward = true;
    o.aux = room.random(k.rows * 4 * c);
    return multiplies(k, o);
  });
}

void add_activations(List& list, const Kit& k) {
  const std::int64_t inner = 4 * k.c, n = k.rows * inner;
  const double bytes = real(n) * k.size;
  push(list, "activate.gelu", [=](Room& room) {
    return k.moves(2 * bytes, &Kernels::activate,
                   Activate{k.type, Activation::gelu, n, room.random(n), room.zeros(n, k.type)});
  });
  push(list, "activate_backward.gelu", [=](Room& room) {
    return k.moves(3 * bytes, &Kernels::activate_backward,
                   ActivateBackward{k.type, Activation::gelu, n, room.random(n), room.random(n),
                                    room.zeros(n, k.type)});
  });
  const auto gated = [=](Room& room) {
    void *in = room.random(2 * n), *din = room.zeros(2 * n, k.type);
    const auto second = [&](void* pair) {
      return static_cast<char*>(pair) + inner * size_of(k.type);
    };
    return GatedSilu{
        k.type,         k.rows, inner,      in, second(in), 2 * inner, room.zeros(n, k.type),
        room.random(n), din,    second(din)};
  };
  push(list, "gated_silu",
       [=](Room& room) { return k.moves(3 * bytes, &Kernels::gated_silu, gated(room)); });
  push(list, "gated_silu_backward",
       [=](Room& room) { return k.moves(5 * bytes, &Kernels::gated_silu_backward, gated(room)); });
}

Norm norm_of(const Kit& k, Room& room, bool rms) {
  const std::int64_t rows = k.rows, c = k.c;
  return {k.type,
          rms,
          1e-5f,
          rows,
          c,
          room.random(rows * c),
          room.random(c),
          rms ? nullptr : room.random(c),
          room.zeros(rows * c, k.type),
          room.floats(rows),
          room.floats(rows)};
}
void add_norms(List& list, const Kit& k) {
  const std::int64_t n = k.rows * k.c;
  const double bytes = real(n) * k.size;
  for (const bool rms : {false, true}) {
    const std::string kind = rms ? ".rms" : ".layer";
    const auto back = [=](Room& room) {
      return NormBackward{norm_of(k, room, rms), room.random(n),
                          room.random(n),        true,
                          room.floats(k.c),      rms ? nullptr : room.floats(k.c)};
    };
    push(list, "norm" + kind,
         [=](Room& room) { return k.moves(2 * bytes, &Kernels::norm, norm_of(k, room, rms)); });
    push(list, "norm_backward_input" + kind,
         [=](Room& room) { return k.moves(4 * bytes, &Kernels::norm_backward_input, back(room)); });
    push(list, "norm_backward_weight" + kind, [=](Room& room) {
      return k.moves(2 * bytes, &Kernels::norm_backward_weight, back(room));
    });
  }
}

Attention attention_of(const Kit& k, Room& room) {
  const std::int64_t c = k.c, rows = k.rows;
  char* qkv = static_cast<char*>(room.random(rows * 3 * c));
  const std::int64_t apart = c * size_of(k.type);
  return {k.type,
          k.sizes.batch,
          k.sizes.time,
          k.sizes.heads,
          k.sizes.heads,
          c / k.sizes.heads,
          qkv,
          qkv + apart,
          qkv + 2 * apart,
          3 * c,
          3 * c,
          room.zeros(rows * c, k.type),
          room.floats(k.sizes.batch * k.sizes.heads * k.sizes.time)};
}
/// Half of the matrix is masked. Backward has 5 products where forward has 2 (Dao et al. 2022).
void add_attentions(List& list, const Kit& k) {
  const double one = real(k.rows) * real(k.sizes.time) * real(k.c);
  push(list, "attention", [=](Room& room) {
    return Case{.call = k.calls(&Kernels::attention, attention_of(k, room)), .flops = 2 * one};
  });
  push(list, "attention_backward", [=](Room& room) {
    const std::int64_t c = k.c, rows = k.rows;
    const Attention forward = attention_of(k, room);
    k.device->kernels().attention(k.device->compute(), forward);
    char* dqkv = static_cast<char*>(room.zeros(rows * 3 * c, k.type));
    const std::int64_t apart = c * size_of(k.type);
    return Case{.call = k.calls(&Kernels::attention_backward,
                                AttentionBackward{forward, room.random(rows * c), dqkv,
                                                  dqkv + apart, dqkv + 2 * apart}),
                .flops = 5 * one};
  });
  push(list, "rope", [=](Room& room) {
    const std::int64_t c = k.c, rows = k.rows;
    return k.moves(2 * real(rows * c) * k.size, &Kernels::rope,
                   Rope{.type = k.type,
                        .rows = rows,
                        .time = k.sizes.time,
                        .heads = k.sizes.heads,
                        .head_size = c / k.sizes.heads,
                        .row = c,
                        .x = room.random(rows * c)});
  });
}

Embedding embedding_of(const Kit& k, Room& room) {
  const std::int64_t c = k.c, rows = k.rows;
  return {.type = k.type,
          .rows = rows,
          .time = k.sizes.time,
          .columns = c,
          .tokens = room.tokens(rows, k.sizes.vocabulary),
          .table = room.random(k.sizes.vocabulary * c),
          .table_rows = k.sizes.vocabulary,
          .positions = room.random(k.sizes.time * c),
          .out = room.zeros(rows * c, k.type)};
}
void add_tokens(List& list, const Kit& k) {
  const std::int64_t c = k.c, rows = k.rows;
  const double bytes = real(rows * c) * k.size;
  push(list, "embedding",
       [=](Room& room) { return k.moves(2 * bytes, &Kernels::embedding, embedding_of(k, room)); });
  push(list, "embedding_backward", [=](Room& room) {
    Embedding o = embedding_of(k, room);
    o.dout = room.random(rows * c);
    o.dtable = room.zeros(k.sizes.vocabulary * c, DType::f32);
    o.dpositions = room.zeros(k.sizes.time * c, DType::f32);
    const std::int64_t touched = std::min(rows, k.sizes.vocabulary) + k.sizes.time;
    return k.moves(bytes + 8 * real(touched * c), &Kernels::embedding_backward, o);
  });
  push(list, "dropout", [=](Room& room) {
    return k.moves(2 * bytes, &Kernels::dropout,
                   Dropout{.type = k.type,
                           .p = 0.1f,
                           .seed = 1,
                           .stream = 1,
                           .rows = rows,
                           .columns = c,
                           .time = k.sizes.time,
                           .all_columns = c,
                           .in = room.random(rows * c),
                           .out = room.zeros(rows * c, k.type)});
  });
}

CrossEntropy loss_of(const Kit& k, Room& room) {
  const std::int64_t rows = k.rows, classes = k.sizes.vocabulary;
  return {k.type,
          rows,
          0,
          classes,
          classes,
          room.random(rows * classes),
          room.tokens(rows, classes),
          room.floats(rows),
          room.floats(rows),
          room.floats(rows),
          room.floats(rows),
          true,
          1.0 / real(rows)};
}
void add_losses(List& list, const Kit& k) {
  const double bytes = real(k.rows) * real(k.sizes.vocabulary) * k.size;
  push(list, "cross_entropy",
       [=](Room& room) { return k.moves(2 * bytes, &Kernels::cross_entropy, loss_of(k, room)); });
  push(list, "cross_entropy_stats",
       [=](Room& room) { return k.moves(bytes, &Kernels::cross_entropy_stats, loss_of(k, room)); });
  push(list, "cross_entropy_finish", [=](Room& room) {
    const CrossEntropy o = loss_of(k, room);
    k.device->kernels().cross_entropy_stats(k.device->compute(), o);
    return k.moves(2 * bytes, &Kernels::cross_entropy_finish, o);
  });
  push(list, "combine_stats", [=](Room& room) {  // the statistics of two ranks
    return k.moves(4 * 9 * real(k.rows), &Kernels::combine_stats,
                   CombineStats{.rows = k.rows,
                                .parts = 2,
                                .in = room.floats(6 * k.rows),
                                .out = room.zeros(3 * k.rows, DType::f32)});
  });
}

void add_vectors(List& list, const Kit& k) {
  const std::int64_t n = k.rows * k.c, rows = k.rows;
  const double bytes = real(n) * k.size;
  const auto elementwise = [=](Room& room) {
    return Elementwise{k.type, n, room.random(n), room.random(n), room.zeros(n, k.type), 0.5};
  };
  push(list, "add",
       [=](Room& room) { return k.moves(3 * bytes, &Kernels::add, elementwise(room)); });
  push(list, "scale",
       [=](Room& room) { return k.moves(2 * bytes, &Kernels::scale, elementwise(room)); });
  push(list, "fill", [=](Room& room) { return k.moves(bytes, &Kernels::fill, elementwise(room)); });
  push(list, "column_sum", [=](Room& room) {
    return k.moves(4 * bytes, &Kernels::column_sum,
                   ColumnSum{k.type, rows, 4 * k.c, room.random(4 * n), room.floats(4 * k.c)});
  });
  push(list, "transpose", [=](Room& room) {
    return k.moves(2 * bytes, &Kernels::transpose,
                   Transpose{k.type, k.sizes.batch, k.sizes.time, k.sizes.heads,
                             k.c / k.sizes.heads, room.random(n), room.zeros(n, k.type)});
  });
  if (k.type == DType::f32) return;
  const std::int64_t all = k.sizes.parameters;
  push(list, "cast.from_f32", [=](Room& room) {
    return k.moves(6 * real(all), &Kernels::cast,
                   Cast{DType::f32, k.type, all, room.floats(all), room.zeros(all, k.type)});
  });
  push(list, "cast.to_f32", [=](Room& room) {
    return k.moves(6 * real(all), &Kernels::cast,
                   Cast{k.type, DType::f32, all, room.random(all), room.zeros(all, DType::f32)});
  });
}

/// GPT-2 has no images. These cases use planes of 28 x 28 with as many elements as its
/// activations.
void add_images(List& list, const Kit& k) {
  constexpr std::int64_t side = 28, channels = 6, kernel = 5;
  const std::int64_t plane = side * side;
  const std::int64_t batch = k.rows * k.c / (plane * channels) + 1;
  const std::int64_t in = batch * channels * plane, columns = in * kernel * kernel;
  const Im2col form{k.type, batch, channels, side, side, kernel, 1, kernel / 2};
  for (const bool back : {false, true})
    push(list, back ? "col2im" : "im2col", [=](Room& room) {
      Im2col o = form;
      o.in = room.random(back ? columns : in);
      o.out = room.zeros(back ? in : columns, k.type);
      return k.moves(real(in + columns) * k.size, back ? &Kernels::col2im : &Kernels::im2col, o);
    });
  const auto pool = [=](Room& room) {
    return MaxPool{k.type,
                   batch * channels,
                   side,
                   side,
                   2,
                   room.random(in),
                   room.zeros(in / 4, k.type),
                   static_cast<std::int32_t*>(room.zeros(in / 4, DType::i32)),
                   room.random(in / 4),
                   room.zeros(in, k.type)};
  };
  const double bytes = real(in) * k.size * 1.25 + real(in);
  push(list, "max_pool",
       [=](Room& room) { return k.moves(bytes, &Kernels::max_pool, pool(room)); });
  push(list, "max_pool_backward", [=](Room& room) {
    const MaxPool o = pool(room);
    k.device->kernels().max_pool(k.device->compute(), o);
    return k.moves(bytes, &Kernels::max_pool_backward, o);
  });
}

/// The optimizers update all parameters at once, in f32.
void add_optimizers(List& list, const Kit& k) {
  if (k.type != DType::f32) return;
  const std::int64_t n = k.sizes.parameters;
  push(list, "adamw", [=](Room& room) {
    AdamW o{.n = n, .weights = room.floats(n), .m = room.floats(n)};
    o.v = static_cast<float*>(room.zeros(n, DType::f32));
    o.gradients = room.floats(n);
    return k.moves(28 * real(n), &Kernels::adamw, o);
  });
  push(list, "sgd", [=](Room& room) {
    Sgd o{.n = n, .weights = room.floats(n), .m = room.floats(n), .gradients = room.floats(n)};
    o.momentum = 0.9f;
    return k.moves(20 * real(n), &Kernels::sgd, o);
  });
  push(list, "chunk_squares", [=](Room& room) {
    return k.moves(4 * real(n), &Kernels::chunk_squares,
                   ChunkSquares{.n = n, .x = room.floats(n), .out = room.doubles(n / 1024 + 1)});
  });
}

}  // namespace

std::vector<NamedCase> cases(kernels::Device& device, const Sizes& sizes, kernels::DType type) {
  const Kit kit{&device, sizes, type, real(size_of(type)), sizes.rows(), sizes.channels};
  List list;
  for (const auto add : {add_products, add_activations, add_norms, add_attentions, add_tokens,
                         add_losses, add_vectors, add_images, add_optimizers})
    add(list, kit);
  return list;
}

}  // namespace troupe::gpu

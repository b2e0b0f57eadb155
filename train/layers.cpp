#include "troupe/train/layers.hpp"

#include "troupe/kernels/kernels.hpp"
#include "troupe/train/hash.hpp"

#include <cstring>

namespace troupe::train {
namespace {

using kernels::Op;

/// Fills a tensor with normal numbers that depend on (seed, name, element) alone.
void fill_normal(float* p, const Parameter& tensor, std::uint64_t seed, float deviation) {
  const std::uint64_t stream = hash_bytes(tensor.name.data(), tensor.name.size());
  kernels::philox_normal(p + tensor.offset, tensor.size, seed, stream, 0, 0.0f, deviation);
}

/// Hands out consecutive parts of a float array.
template <class Pointer>
class Parts {
 public:
  explicit Parts(Pointer base) : next_(base) {}
  Pointer take(std::int64_t n) {
    Pointer part = next_;
    next_ += n;
    return part;
  }

 private:
  Pointer next_;
};

std::size_t bytes(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * 4;
}

}  // namespace

Linear::Linear(ParameterMap& map, const std::string& name, std::int64_t in, std::int64_t out,
               bool bias, float deviation)
    : map_(&map), in_(in), out_(out), deviation_(deviation) {
  weight_ = map.add(name + ".weight", {out, in}, true);
  if (bias) bias_ = map.add(name + ".bias", {out}, false);
}

void Linear::forward(const float* p, const float* x, float* y, std::int64_t rows) const {
  kernels::gemm(Op::none, Op::transpose, rows, out_, in_, x, in_, p + (*map_)[weight_].offset, in_,
                0.0f, y, out_);
  if (bias_ >= 0) kernels::add_bias(y, p + (*map_)[bias_].offset, rows, out_);
}

void Linear::backward_input(const float* p, const float* dy, float* dx, std::int64_t rows) const {
  kernels::gemm(Op::none, Op::none, rows, in_, out_, dy, out_, p + (*map_)[weight_].offset, in_,
                0.0f, dx, in_);
}

void Linear::backward_weight(float* g, const float* dy, const float* x, std::int64_t rows) const {
  kernels::gemm(Op::transpose, Op::none, out_, in_, rows, dy, out_, x, in_, 1.0f,
                g + (*map_)[weight_].offset, in_);
  if (bias_ >= 0) kernels::add_bias_backward(g + (*map_)[bias_].offset, dy, rows, out_);
}

void Linear::initialize(float* p, std::uint64_t seed) const {
  fill_normal(p, (*map_)[weight_], seed, deviation_);
  if (bias_ >= 0) kernels::fill(p + (*map_)[bias_].offset, 0.0f, out_);
}

LayerNorm::LayerNorm(ParameterMap& map, const std::string& name, std::int64_t channels, bool bias)
    : map_(&map), channels_(channels) {
  weight_ = map.add(name + ".weight", {channels}, false);
  if (bias) bias_ = map.add(name + ".bias", {channels}, false);
}

void LayerNorm::forward(const float* p, const float* x, float* y, float* saved,
                        std::int64_t rows) const {
  kernels::layernorm_forward(y, saved, saved + rows, x, p + (*map_)[weight_].offset,
                             bias_ < 0 ? nullptr : p + (*map_)[bias_].offset, rows, channels_);
}

void LayerNorm::backward_input(const float* p, const float* dy, const float* x, const float* saved,
                               float* dx, std::int64_t rows) const {
  kernels::layernorm_backward_input(dx, dy, x, p + (*map_)[weight_].offset, saved, saved + rows,
                                    rows, channels_);
}

void LayerNorm::backward_weight(float* g, const float* dy, const float* x, const float* saved,
                                std::int64_t rows) const {
  kernels::layernorm_backward_weight(g + (*map_)[weight_].offset,
                                     bias_ < 0 ? nullptr : g + (*map_)[bias_].offset, dy, x, saved,
                                     saved + rows, rows, channels_);
}

void LayerNorm::initialize(float* p) const {
  kernels::fill(p + (*map_)[weight_].offset, 1.0f, channels_);
  if (bias_ >= 0) kernels::fill(p + (*map_)[bias_].offset, 0.0f, channels_);
}

/// What a block's backward needs, in the order of its forward.
struct Block::Saved {
  std::int64_t norm1, norm1_out, qkv, probabilities, attended, middle, norm2, norm2_out, up, gelu,
      size;
  Saved(std::int64_t channels, std::int64_t heads, Extent e) {
    const std::int64_t rows = e.rows();
    Parts<std::int64_t> parts(0);
    norm1 = parts.take(2 * rows);
    norm1_out = parts.take(rows * channels);
    qkv = parts.take(3 * rows * channels);
    probabilities = parts.take(e.batch * heads * e.time * e.time);
    attended = parts.take(rows * channels);
    middle = parts.take(rows * channels);
    norm2 = parts.take(2 * rows);
    norm2_out = parts.take(rows * channels);
    up = parts.take(4 * rows * channels);
    gelu = parts.take(4 * rows * channels);
    size = parts.take(0);
  }
};

/// Gradients of the inner activations.
struct Block::Scratch {
  std::int64_t gelu, up, norm2_out, middle, attended, qkv, norm1_out, size;
  Scratch(std::int64_t channels, Extent e) {
    const std::int64_t plane = e.rows() * channels;
    Parts<std::int64_t> parts(0);
    gelu = parts.take(4 * plane);
    up = parts.take(4 * plane);
    norm2_out = parts.take(plane);
    middle = parts.take(plane);
    attended = parts.take(plane);
    qkv = parts.take(3 * plane);
    norm1_out = parts.take(plane);
    size = parts.take(0);
  }
};

Block::Block(ParameterMap& map, const std::string& name, const BlockConfig& c)
    : channels_(c.channels),
      heads_(c.heads),
      norm1_(map, name + ".ln_1", c.channels, c.bias),
      qkv_(map, name + ".attn.c_attn", c.channels, 3 * c.channels, c.bias, c.deviation),
      project_(map, name + ".attn.c_proj", c.channels, c.channels, c.bias, c.residual_deviation),
      norm2_(map, name + ".ln_2", c.channels, c.bias),
      up_(map, name + ".mlp.c_fc", c.channels, 4 * c.channels, c.bias, c.deviation),
      down_(map, name + ".mlp.c_proj", 4 * c.channels, c.channels, c.bias, c.residual_deviation) {}

void Block::forward(const float* p, const float* x, float* y, float* saved, Extent e) const {
  const Saved at(channels_, heads_, e);
  const std::int64_t rows = e.rows(), plane = rows * channels_;
  float* middle = saved + at.middle;
  norm1_.forward(p, x, saved + at.norm1_out, saved + at.norm1, rows);
  qkv_.forward(p, saved + at.norm1_out, saved + at.qkv, rows);
  kernels::attention_forward(saved + at.attended, saved + at.probabilities, saved + at.qkv, e.batch,
                             e.time, channels_, heads_);
  project_.forward(p, saved + at.attended, middle, rows);
  kernels::add(middle, middle, x, plane);
  norm2_.forward(p, middle, saved + at.norm2_out, saved + at.norm2, rows);
  up_.forward(p, saved + at.norm2_out, saved + at.up, rows);
  kernels::gelu_forward(saved + at.gelu, saved + at.up, 4 * plane);
  down_.forward(p, saved + at.gelu, y, rows);
  kernels::add(y, y, middle, plane);
}

void Block::backward_input(const float* p, const float* dy, const float* x, const float* saved,
                           float* scratch, float* dx, Extent e) const {
  const Saved at(channels_, heads_, e);
  const Scratch d(channels_, e);
  const std::int64_t rows = e.rows(), plane = rows * channels_;
  float* dmiddle = scratch + d.middle;
  down_.backward_input(p, dy, scratch + d.gelu, rows);
  kernels::fill(scratch + d.up, 0.0f, 4 * plane);
  kernels::gelu_backward(scratch + d.up, scratch + d.gelu, saved + at.up, 4 * plane);
  up_.backward_input(p, scratch + d.up, scratch + d.norm2_out, rows);
  std::memcpy(dmiddle, dy, bytes(plane));
  norm2_.backward_input(p, scratch + d.norm2_out, saved + at.middle, saved + at.norm2, dmiddle,
                        rows);
  project_.backward_input(p, dmiddle, scratch + d.attended, rows);
  kernels::fill(scratch + d.qkv, 0.0f, 3 * plane);
  kernels::attention_backward(scratch + d.qkv, scratch + d.attended, saved + at.qkv,
                              saved + at.probabilities, e.batch, e.time, channels_, heads_);
  qkv_.backward_input(p, scratch + d.qkv, scratch + d.norm1_out, rows);
  std::memcpy(dx, dmiddle, bytes(plane));
  norm1_.backward_input(p, scratch + d.norm1_out, x, saved + at.norm1, dx, rows);
}

void Block::backward_weight(float* g, const float* dy, const float* x, const float* saved,
                            const float* scratch, Extent e) const {
  const Saved at(channels_, heads_, e);
  const Scratch d(channels_, e);
  const std::int64_t rows = e.rows();
  down_.backward_weight(g, dy, saved + at.gelu, rows);
  up_.backward_weight(g, scratch + d.up, saved + at.norm2_out, rows);
  norm2_.backward_weight(g, scratch + d.norm2_out, saved + at.middle, saved + at.norm2, rows);
  project_.backward_weight(g, scratch + d.middle, saved + at.attended, rows);
  qkv_.backward_weight(g, scratch + d.qkv, saved + at.norm1_out, rows);
  norm1_.backward_weight(g, scratch + d.norm1_out, x, saved + at.norm1, rows);
}

void Block::initialize(float* p, std::uint64_t seed) const {
  norm1_.initialize(p);
  norm2_.initialize(p);
  for (const Linear* layer : {&qkv_, &project_, &up_, &down_}) layer->initialize(p, seed);
}

std::int64_t Block::saved_bytes(Extent e) const noexcept {
  return 4 * Saved(channels_, heads_, e).size;
}

std::int64_t Block::scratch_bytes(Extent e) const noexcept {
  return 4 * Scratch(channels_, e).size;
}

}  // namespace troupe::train

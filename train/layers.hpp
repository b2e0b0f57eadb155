/// The layers of a transformer, explicit: no tape. A layer knows its tensors' place in the slab; it
/// holds no values. `p` is the parameter slab, `g` the gradient slab.
///
///     Linear fc(map, "mlp.c_fc", channels, 4 * channels, /*bias=*/true, 0.02f);
///     fc.forward(p, x, y, rows);
///     fc.backward_input(p, dy, dx, rows);     // writes dx
///     fc.backward_weight(g, dy, x, rows);     // adds to g
///
/// Input and weight gradients are separate calls, so that a schedule may send the first on and do
/// the second later. Matrices are row-major, one row per token.
#pragma once

#include "troupe/train/parameters.hpp"

#include <cstdint>
#include <string>

namespace troupe::train {

/// y = x W^T + b, W [out, in].
class TROUPE_API Linear {
 public:
  Linear(ParameterMap& map, const std::string& name, std::int64_t in, std::int64_t out, bool bias,
         float deviation);
  void forward(const float* p, const float* x, float* y, std::int64_t rows) const;
  /// dx = dy W.
  void backward_input(const float* p, const float* dy, float* dx, std::int64_t rows) const;
  /// g(W) += dy^T x, g(b) += column sums of dy.
  void backward_weight(float* g, const float* dy, const float* x, std::int64_t rows) const;
  void initialize(float* p, std::uint64_t seed) const;
  /// Bytes of its output that backward needs kept: none (it needs its input).
  std::int64_t saved_bytes(std::int64_t) const noexcept { return 0; }

  /// First and one past the last tensor in the map.
  int first_tensor() const noexcept { return weight_; }
  int end_tensor() const noexcept { return bias_ < 0 ? weight_ + 1 : bias_ + 1; }

 private:
  const ParameterMap* map_;
  int weight_ = -1, bias_ = -1;
  std::int64_t in_, out_;
  float deviation_;
};

/// Layer normalisation. saved points to 2 * rows floats: mean and reciprocal deviation.
class TROUPE_API LayerNorm {
 public:
  LayerNorm(ParameterMap& map, const std::string& name, std::int64_t channels, bool bias);
  void forward(const float* p, const float* x, float* y, float* saved, std::int64_t rows) const;
  /// dx += the gradient: the residual's part is usually there already.
  void backward_input(const float* p, const float* dy, const float* x, const float* saved,
                      float* dx, std::int64_t rows) const;
  void backward_weight(float* g, const float* dy, const float* x, const float* saved,
                       std::int64_t rows) const;
  void initialize(float* p) const;
  std::int64_t saved_bytes(std::int64_t rows) const noexcept { return 8 * rows; }
  int first_tensor() const noexcept { return weight_; }
  int end_tensor() const noexcept { return bias_ < 0 ? weight_ + 1 : bias_ + 1; }

 private:
  const ParameterMap* map_;
  int weight_ = -1, bias_ = -1;
  std::int64_t channels_;
};

/// Shape of one forward pass.
struct Extent {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t rows() const noexcept { return batch * time; }
};

struct BlockConfig {
  std::int64_t channels = 0;
  std::int64_t heads = 0;
  bool bias = true;
  float deviation = 0.02f;           ///< of the initial weights
  float residual_deviation = 0.02f;  ///< of the two projections back into the residual stream
};

/// A pre-norm transformer block as in GPT-2: x + attention(norm(x)), then the same with an MLP.
class TROUPE_API Block {
 public:
  Block(ParameterMap& map, const std::string& name, const BlockConfig& config);
  /// Writes y and what backward needs to saved (saved_bytes). x must stay until backward.
  void forward(const float* p, const float* x, float* y, float* saved, Extent extent) const;
  /// Writes dx and the inner gradients to scratch (scratch_bytes), from dy.
  void backward_input(const float* p, const float* dy, const float* x, const float* saved,
                      float* scratch, float* dx, Extent extent) const;
  /// Adds the weight gradients to g; dy, saved and scratch as backward_input left them.
  void backward_weight(float* g, const float* dy, const float* x, const float* saved,
                       const float* scratch, Extent extent) const;
  void initialize(float* p, std::uint64_t seed) const;

  std::int64_t saved_bytes(Extent extent) const noexcept;
  std::int64_t scratch_bytes(Extent extent) const noexcept;
  int first_tensor() const noexcept { return norm1_.first_tensor(); }
  int end_tensor() const noexcept { return down_.end_tensor(); }

 private:
  struct Saved;
  struct Scratch;
  std::int64_t channels_, heads_;
  LayerNorm norm1_;
  Linear qkv_, project_;
  LayerNorm norm2_;
  Linear up_, down_;
};

}  // namespace troupe::train

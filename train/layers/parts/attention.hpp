/// Attention: the projections to query, key and value, causal multi-head attention, and the
/// output projection.
///
///     Attention attention({.channels = c, .heads = 12, .kv_heads = 12});
///     attention.declare(index, unit, "h.0.attn");
///     Attention::Saved saved(carve, attention.config(), pass);
///     attention.forward(run, w, x, y, /*add=*/true, saved, temporary, pass);
#pragma once

#include "troupe/train/layers/parts/norm.hpp"

namespace troupe::train::parts {

/// Shape and division of one pass over a batch of rows of tokens.
struct Pass {
  std::int64_t batch = 0, time = 0;
  DType type = DType::f32;
  Recompute recompute = Recompute::none;
  int tp = 1;         ///< ranks that divide heads and inner channels
  int row_parts = 1;  ///< ranks that divide rows between attention and MLP
  std::int64_t rows() const noexcept { return batch * time; }
  std::int64_t own_rows() const noexcept { return rows() / row_parts; }
};

/// Longest row of tokens whose attention probabilities are saved. Longer rows use an online
/// softmax, which saves one number for each row and head. The limit does not depend on the batch
/// size, so every layout makes the same choice.
inline constexpr std::int64_t kKeptProbabilities = 512;

struct AttentionConfig {
  std::int64_t channels = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values; divides heads
  /// Whether query, key and value share one matrix ("c_attn", "c_proj"). Otherwise each has its
  /// own, without biases ("q_proj", "k_proj", "v_proj", "o_proj").
  bool fused = true;
  bool bias = true;
  float rope_theta = 0;  ///< base of the rotary embedding; 0: none
  float deviation = 0.02f, residual_deviation = 0.02f;

  std::int64_t head_size() const noexcept { return channels / heads; }
  /// Returns the columns of query, key and value side by side.
  std::int64_t width() const noexcept { return (heads + 2 * kv_heads) * head_size(); }
};

/// Throws InvalidArgument, its message beginning with `name`, when heads does not divide
/// channels, or kv_heads does not divide heads; with rotary embedding also for an odd head size.
TROUPE_API void check(const AttentionConfig& config, const std::string& name);
/// Throws also when the layout's ranks cannot divide the heads.
TROUPE_API void check(const AttentionConfig& config, const std::string& name, const Layout& layout);

/// Under tensor parallelism ranks divide the heads. x and y have all rows. y and the dx of
/// backward_input() are this rank's addend of a sum over ranks.
class TROUPE_API Attention {
 public:
  /// Throws as check().
  explicit Attention(const AttentionConfig& config);
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  void initialize(const Run& run, const Tensors& w) const;

  /// Memory that forward writes and backward reads.
  struct Saved {
    TensorView qkv, attended;
    TensorView probabilities, lse;  ///< one of the two; neither with Recompute::selective
    Saved(Carve& carve, const AttentionConfig& config, const Pass& pass);
  };
  /// Memory that backward_input writes and backward_weight reads.
  struct Carry {
    TensorView dqkv;
    Carry(Carve& carve, const AttentionConfig& config, const Pass& pass);
  };
  static std::int64_t temporary_bytes(const AttentionConfig& config, const Pass& pass);

  /// Writes y, or adds to it with `add`.
  void forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y, bool add,
               const Saved& saved, const TensorView& temporary, const Pass& pass) const;
  /// Writes dx.
  void backward_input(const Run& run, const Tensors& w, const TensorView& dy, const Saved& saved,
                      const Carry& carry, const TensorView& temporary, const TensorView& dx,
                      const Pass& pass) const;
  /// Adds to g. dy and x are those of the earlier calls.
  void backward_weight(const Run& run, const Tensors& g, const TensorView& dy, const TensorView& x,
                       const Saved& saved, const Carry& carry, const Pass& pass) const;

  const AttentionConfig& config() const noexcept { return config_; }
  /// Floating-point operations of forward on all ranks.
  double flops(std::int64_t rows, std::int64_t time) const noexcept;

 private:
  kernels::Attention describe(const Saved& saved, const Pass& pass) const;
  void rotate(const Run& run, const TensorView& qkv, const Pass& pass, bool inverse) const;
  /// Returns the first column of the i-th input projection in this rank's qkv.
  std::int64_t column(std::size_t i, const Pass& pass) const noexcept;

  AttentionConfig config_;
  std::vector<Linear> in_;  // qkv, or q, k, v
  Linear out_;
};

}  // namespace troupe::train::parts

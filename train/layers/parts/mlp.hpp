/// Mlp and SwiGlu: the feed-forward part of a transformer block, between its norm and its
/// residual sum.
///
///     Mlp mlp({.channels = c, .inner = 4 * c});
///     mlp.declare(index, unit, "h.0.mlp");
///     Mlp::Saved saved(carve, mlp.config(), pass);
///     mlp.forward(run, w, x, y, /*add=*/true, saved);
#pragma once

#include "troupe/train/layers/parts/attention.hpp"

namespace troupe::train::parts {

struct MlpConfig {
  std::int64_t channels = 0;
  std::int64_t inner = 0;
  bool bias = true;  ///< not with SwiGlu
  float deviation = 0.02f, residual_deviation = 0.02f;
};

/// Throws InvalidArgument, its message beginning with `name`, when the layout's ranks cannot
/// divide the inner channels.
TROUPE_API void check(const MlpConfig& config, const std::string& name, const Layout& layout);

/// Computes gelu(x A^T + a) B^T + b, as in GPT-2 ("c_fc", "c_proj"). Under tensor parallelism
/// ranks divide the inner channels. x and y have all rows. y and the dx of backward_input() are
/// this rank's addend of a sum over ranks.
class TROUPE_API Mlp {
 public:
  explicit Mlp(const MlpConfig& config);
  /// Throws as check().
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  void initialize(const Run& run, const Tensors& w) const;

  struct Saved {
    TensorView up, gelu;  ///< before and after the activation
    Saved(Carve& carve, const MlpConfig& config, const Pass& pass);
  };
  struct Carry {
    TensorView dup;
    Carry(Carve& carve, const MlpConfig& config, const Pass& pass);
  };
  static std::int64_t temporary_bytes(const MlpConfig&, const Pass&) noexcept { return 0; }

  /// Writes y, or adds to it with `add`.
  void forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y, bool add,
               const Saved& saved) const;
  /// Writes dx.
  void backward_input(const Run& run, const Tensors& w, const TensorView& dy, const Saved& saved,
                      const Carry& carry, const TensorView& temporary, const TensorView& dx) const;
  void backward_weight(const Run& run, const Tensors& g, const TensorView& dy, const TensorView& x,
                       const Saved& saved, const Carry& carry) const;

  const MlpConfig& config() const noexcept { return config_; }
  double flops(std::int64_t rows) const noexcept { return up_.flops(rows) + down_.flops(rows); }

 private:
  MlpConfig config_;
  Linear up_, down_;
};

/// Computes (silu(x G^T) * (x U^T)) D^T without biases (Shazeer 2020), as in Llama ("gate_proj",
/// "up_proj", "down_proj"). Divided as Mlp.
class TROUPE_API SwiGlu {
 public:
  explicit SwiGlu(const MlpConfig& config);
  /// Throws as check().
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  void initialize(const Run& run, const Tensors& w) const;

  struct Saved {
    TensorView in;     ///< gate and up side by side
    TensorView gated;  ///< silu(gate) * up
    Saved(Carve& carve, const MlpConfig& config, const Pass& pass);
  };
  struct Carry {
    TensorView din;
    Carry(Carve& carve, const MlpConfig& config, const Pass& pass);
  };
  static std::int64_t temporary_bytes(const MlpConfig& config, const Pass& pass) noexcept;

  /// Writes y, or adds to it with `add`.
  void forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y, bool add,
               const Saved& saved) const;
  /// Writes dx.
  void backward_input(const Run& run, const Tensors& w, const TensorView& dy, const Saved& saved,
                      const Carry& carry, const TensorView& temporary, const TensorView& dx) const;
  void backward_weight(const Run& run, const Tensors& g, const TensorView& dy, const TensorView& x,
                       const Saved& saved, const Carry& carry) const;

  const MlpConfig& config() const noexcept { return config_; }
  double flops(std::int64_t rows) const noexcept;

 private:
  MlpConfig config_;
  Linear gate_, up_, down_;
};

}  // namespace troupe::train::parts

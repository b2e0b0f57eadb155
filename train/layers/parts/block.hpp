/// PreNormBlock: a transformer block with norms before its parts (Xiong et al. 2020). It computes
/// x + attention(norm(x)), and then the same with an MLP, whose kind is a template parameter.
///
///     PreNormBlock<Mlp> block("h.0", {.attention = attention, .norm = norm, .mlp = mlp});
#pragma once

#include "troupe/train/layers/parts/mlp.hpp"

namespace troupe::train::parts {

struct BlockConfig {
  AttentionConfig attention;
  NormConfig norm;
  MlpConfig mlp;
  float dropout = 0;  ///< on the outputs of attention and MLP, before they are added to the
                      ///< residual stream
  /// Names of the parts, appended to the block's name.
  std::string norm1 = "ln_1", core = "attn", norm2 = "ln_2", inner = "mlp";
};

/// Maps [batch, time, channels] to the same shape; with Layout::sequence both are this rank's
/// rows. Tensor-parallel ranks exchange the bytes of two all-reduces in forward and two in
/// backward. The block saves all rows of both norms' outputs, so that backward does not gather
/// them again.
template <class Inner>
class TROUPE_API PreNormBlock : public Layer {
 public:
  PreNormBlock(std::string name, const BlockConfig& config);

  void declare(Index& index, int unit, const Layout& layout) override;
  void initialize(const Run& run, const Tensors& w) const override;
  Need need(const Spec& in, const Layout& layout) const override;
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView temporary) const override;
  void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                      TensorView saved, TensorView carry, TensorView temporary,
                      TensorView dx) const override;
  void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                       TensorView saved, TensorView carry, TensorView temporary) const override;
  double flops(const Spec& in) const override;
  PassExchanges exchanges(const Spec& in, const Layout& layout) const override;

 private:
  struct Saved;
  struct Carry;
  struct Temporary;
  Pass pass_of(const Spec& in, const Layout& layout) const;
  /// Computes y = x + dropout(branch). branch(to, add) writes this rank's addend to `whole`, or
  /// adds to y.
  template <class Branch>
  void add_branch(const Run& run, const Dropout& dropout, const TensorView& x, const TensorView& y,
                  const TensorView& whole, Branch&& branch) const;
  /// Returns the gradient of a branch's output, all rows: dy itself, or `memory`.
  TensorView enter_branch(const Run& run, const Dropout& dropout, const TensorView& dy,
                          const TensorView& memory) const;

  BlockConfig config_;
  Norm norm1_, norm2_;
  Attention attention_;
  Inner inner_;
  Dropout dropout1_, dropout2_;
};

extern template class PreNormBlock<Mlp>;
extern template class PreNormBlock<SwiGlu>;

}  // namespace troupe::train::parts

#include "troupe/train/layers/parts/block.hpp"

#include "troupe/train/layers/internal/common.hpp"

#include <algorithm>

namespace troupe::train::parts {
namespace {

TensorView take_stream(Carve& carve, const BlockConfig& c, const Pass& pass) {
  return carve.take(pass.type, {pass.rows(), c.attention.channels});
}

/// Its parts have no names: what they would refuse is refused here, with the block's.
BlockConfig checked(const std::string& name, const BlockConfig& c) {
  check(c.attention, name);
  if (c.mlp.channels < 1 || c.mlp.inner < 1)
    internal::reject(name + ": the sizes of an MLP must be positive");
  return c;
}

}  // namespace

template <class Inner>
struct PreNormBlock<Inner>::Saved {
  TensorView statistics1, normed1;
  Attention::Saved attention;
  TensorView middle;  // the residual stream between attention and MLP
  TensorView statistics2, normed2;
  typename Inner::Saved inner;

  Saved(Carve& carve, const PreNormBlock& b, const Pass& pass)
      : statistics1(b.norm1_.take_statistics(carve, pass.type, pass.rows())),
        normed1(take_stream(carve, b.config_, pass)),
        attention(carve, b.attention_.config(), pass),
        middle(take_stream(carve, b.config_, pass)),
        statistics2(b.norm2_.take_statistics(carve, pass.type, pass.rows())),
        normed2(take_stream(carve, b.config_, pass)),
        inner(carve, b.inner_.config(), pass) {}
};

template <class Inner>
struct PreNormBlock<Inner>::Carry {
  Attention::Carry attention;
  typename Inner::Carry inner;
  TensorView dnormed1, dmiddle, dnormed2;
  TensorView dropped1, dropped2;  // gradients behind dropout, if it may be on

  Carry(Carve& carve, const PreNormBlock& b, const Pass& pass)
      : attention(carve, b.attention_.config(), pass),
        inner(carve, b.inner_.config(), pass),
        dnormed1(take_stream(carve, b.config_, pass)),
        dmiddle(take_stream(carve, b.config_, pass)),
        dnormed2(take_stream(carve, b.config_, pass)) {
    if (!b.dropout1_.may_be_on()) return;
    dropped1 = take_stream(carve, b.config_, pass);
    dropped2 = take_stream(carve, b.config_, pass);
  }
};

template <class Inner>
PreNormBlock<Inner>::PreNormBlock(std::string name, const BlockConfig& config)
    : Layer(std::move(name)),
      config_(checked(this->name(), config)),
      norm1_(config.norm),
      norm2_(config.norm),
      attention_(config.attention),
      inner_(config.mlp),
      dropout1_(this->name() + "." + config.core + ".dropout", config.dropout),
      dropout2_(this->name() + "." + config.inner + ".dropout", config.dropout) {}

template <class Inner>
void PreNormBlock<Inner>::declare(Index& index, int unit, const Layout& layout) {
  internal::refuse_tensor_parallel(*this, layout);
  const std::string prefix = name() + ".";
  norm1_.declare(index, unit, prefix + config_.norm1);
  attention_.declare(index, unit, prefix + config_.core);
  norm2_.declare(index, unit, prefix + config_.norm2);
  inner_.declare(index, unit, prefix + config_.inner);
}

template <class Inner>
void PreNormBlock<Inner>::initialize(const Run& run, const Tensors& w) const {
  norm1_.initialize(run, w);
  attention_.initialize(run, w);
  norm2_.initialize(run, w);
  inner_.initialize(run, w);
}

template <class Inner>
Pass PreNormBlock<Inner>::pass_of(const Spec& in, const Layout& layout) const {
  return {in.shape[0], in.shape[1], in.type, layout.recompute};
}

template <class Inner>
Need PreNormBlock<Inner>::need(const Spec& in, const Layout& layout) const {
  const std::int64_t channels = config_.attention.channels;
  if (!internal::fits(in, layout, 3, channels))
    internal::reject_input(
        *this, in,
        internal::type_text(layout) + " [batch, time, " + std::to_string(channels) + "]");
  const Pass pass = pass_of(in, layout);
  Carve saved, carry;
  [[maybe_unused]] const Saved kept(saved, *this, pass);
  [[maybe_unused]] const Carry carried(carry, *this, pass);
  return {.out = in,
          .saved = saved.bytes(),
          .carry = carry.bytes(),
          .temporary = std::max(Attention::temporary_bytes(attention_.config(), pass),
                                Inner::temporary_bytes(inner_.config(), pass))};
}

template <class Inner>
template <class Branch>
void PreNormBlock<Inner>::add_branch(const Run& run, const Dropout& dropout, const TensorView& x,
                                     const TensorView& y, Branch&& branch) const {
  if (!dropout.is_on(run)) {  // the branch's last product adds
    internal::copy(run, x, y);
    return branch(true);
  }
  branch(false);
  dropout.apply(run, y, y, x.shape[1]);
  internal::add(run, x, y, y);
}

template <class Inner>
void PreNormBlock<Inner>::forward(const Run& run, const Tensors& w, TensorView x, TensorView y,
                                  TensorView saved, TensorView temporary) const {
  const Pass pass = pass_of(x.spec(), run.layout);
  Carve carve(saved);
  Saved s(carve, *this, pass);
  s.middle.shape = x.shape;
  norm1_.forward(run, w, x, s.normed1, s.statistics1);
  add_branch(run, dropout1_, x, s.middle, [&](bool add) {
    attention_.forward(run, w, s.normed1, s.middle, add, s.attention, temporary, pass);
  });
  norm2_.forward(run, w, s.middle, s.normed2, s.statistics2);
  add_branch(run, dropout2_, s.middle, y,
             [&](bool add) { inner_.forward(run, w, s.normed2, y, add, s.inner); });
}

template <class Inner>
void PreNormBlock<Inner>::backward_input(const Run& run, const Tensors& w, TensorView dy,
                                         TensorView x, TensorView saved, TensorView carry,
                                         TensorView temporary, TensorView dx) const {
  const Pass pass = pass_of(x.spec(), run.layout);
  Carve saved_carve(saved), carry_carve(carry);
  const Saved s(saved_carve, *this, pass);
  const Carry c(carry_carve, *this, pass);
  const bool drops = dropout1_.is_on(run);
  if (drops) dropout2_.apply(run, dy, c.dropped2, pass.time);
  inner_.backward_input(run, w, drops ? c.dropped2 : dy, s.inner, c.inner, temporary, c.dnormed2);
  internal::copy(run, dy, c.dmiddle);
  norm2_.backward_input(run, w, c.dnormed2, s.middle, s.statistics2, c.dmiddle, true);
  if (drops) dropout1_.apply(run, c.dmiddle, c.dropped1, pass.time);
  attention_.backward_input(run, w, drops ? c.dropped1 : c.dmiddle, s.attention, c.attention,
                            temporary, c.dnormed1, pass);
  if (dx.data == nullptr) return;
  internal::copy(run, c.dmiddle, dx);
  norm1_.backward_input(run, w, c.dnormed1, x, s.statistics1, dx, true);
}

template <class Inner>
void PreNormBlock<Inner>::backward_weight(const Run& run, const Tensors& g, TensorView dy,
                                          TensorView x, TensorView saved, TensorView carry,
                                          TensorView) const {
  const Pass pass = pass_of(x.spec(), run.layout);
  Carve saved_carve(saved), carry_carve(carry);
  const Saved s(saved_carve, *this, pass);
  const Carry c(carry_carve, *this, pass);
  const bool drops = dropout1_.is_on(run);
  inner_.backward_weight(run, g, drops ? c.dropped2 : dy, s.normed2, s.inner, c.inner);
  norm2_.backward_weight(run, g, c.dnormed2, s.middle, s.statistics2);
  attention_.backward_weight(run, g, drops ? c.dropped1 : c.dmiddle, s.normed1, s.attention,
                             c.attention);
  norm1_.backward_weight(run, g, c.dnormed1, x, s.statistics1);
}

template <class Inner>
double PreNormBlock<Inner>::flops(const Spec& in) const {
  const std::int64_t rows = in.shape[0] * in.shape[1];
  return attention_.flops(rows, in.shape[1]) + inner_.flops(rows);
}

template class PreNormBlock<Mlp>;
template class PreNormBlock<SwiGlu>;

}  // namespace troupe::train::parts

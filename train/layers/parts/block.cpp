#include "troupe/train/layers/parts/block.hpp"

#include "troupe/train/layers/internal/common.hpp"

#include <algorithm>

namespace troupe::train::parts {
namespace {

/// Take memory for a residual stream or a branch: this rank's rows (own), or all rows (whole).
TensorView take_own(Carve& carve, const BlockConfig& c, const Pass& pass) {
  return carve.take(Spec{pass.type, {pass.batch, pass.time, c.attention.channels}, pass.row_parts});
}
TensorView take_whole(Carve& carve, const BlockConfig& c, const Pass& pass) {
  return carve.take(pass.type, {pass.batch, pass.time, c.attention.channels});
}

/// Checks the configuration under the block's name, because its parts have no names.
BlockConfig checked(const std::string& name, const BlockConfig& c) {
  check(c.attention, name);
  if (c.mlp.channels < 1 || c.mlp.inner < 1)
    internal::reject(name + ": the sizes of an MLP must be positive");
  return c;
}

}  // namespace

template <class Inner>
struct PreNormBlock<Inner>::Saved {
  TensorView statistics1, normed1;  // normed1 and normed2 have all rows
  Attention::Saved attention;
  TensorView middle;  // the residual stream between attention and MLP
  TensorView statistics2, normed2;
  typename Inner::Saved inner;

  Saved(Carve& carve, const PreNormBlock& b, const Pass& pass)
      : statistics1(b.norm1_.take_statistics(carve, pass.type, pass.own_rows())),
        normed1(take_whole(carve, b.config_, pass)),
        attention(carve, b.attention_.config(), pass),
        middle(take_own(carve, b.config_, pass)),
        statistics2(b.norm2_.take_statistics(carve, pass.type, pass.own_rows())),
        normed2(take_whole(carve, b.config_, pass)),
        inner(carve, b.inner_.config(), pass) {}
};

template <class Inner>
struct PreNormBlock<Inner>::Carry {
  Attention::Carry attention;
  typename Inner::Carry inner;
  TensorView dnormed1, dmiddle, dnormed2;
  TensorView branch1, branch2;  // all rows of dy of a branch, unless it is dy itself

  Carry(Carve& carve, const PreNormBlock& b, const Pass& pass)
      : attention(carve, b.attention_.config(), pass),
        inner(carve, b.inner_.config(), pass),
        dnormed1(take_own(carve, b.config_, pass)),
        dmiddle(take_own(carve, b.config_, pass)),
        dnormed2(take_own(carve, b.config_, pass)) {
    if (!b.dropout1_.may_be_on() && pass.row_parts == 1) return;
    branch1 = take_whole(carve, b.config_, pass);
    branch2 = take_whole(carve, b.config_, pass);
  }
};

/// Memory for all rows of a sum before it is scattered, and the temporary memory of a part.
template <class Inner>
struct PreNormBlock<Inner>::Temporary {
  TensorView whole, rest;

  Temporary(Carve& carve, const PreNormBlock& b, const Pass& pass) {
    if (pass.row_parts > 1) whole = take_whole(carve, b.config_, pass);
    rest = carve.take(DType::u8, {std::max(Attention::temporary_bytes(b.config_.attention, pass),
                                           Inner::temporary_bytes(b.config_.mlp, pass))});
  }
  /// Returns where to sum when the result is the rows `own`.
  TensorView sum_for(const TensorView& own) const { return whole.data == nullptr ? own : whole; }
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
  const std::string prefix = name() + ".";
  norm1_.declare(index, unit, prefix + config_.norm1, layout);
  attention_.declare(index, unit, prefix + config_.core, layout);
  norm2_.declare(index, unit, prefix + config_.norm2, layout);
  inner_.declare(index, unit, prefix + config_.inner, layout);
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
  return {in.shape[0], in.shape[1], in.type, layout.recompute, layout.tp, row_parts(layout)};
}

template <class Inner>
Need PreNormBlock<Inner>::need(const Spec& in, const Layout& layout) const {
  internal::require_stream(*this, in, layout, config_.attention.channels);
  const Pass pass = pass_of(in, layout);
  Carve saved, carry, temporary;
  [[maybe_unused]] const Saved kept(saved, *this, pass);
  [[maybe_unused]] const Carry carried(carry, *this, pass);
  [[maybe_unused]] const Temporary used(temporary, *this, pass);
  return {
      .out = in, .saved = saved.bytes(), .carry = carry.bytes(), .temporary = temporary.bytes()};
}

template <class Inner>
template <class Branch>
void PreNormBlock<Inner>::add_branch(const Run& run, const Dropout& dropout, const TensorView& x,
                                     const TensorView& y, const TensorView& whole,
                                     Branch&& branch) const {
  if (run.layout.tp == 1 && !dropout.is_on(run)) {  // the branch's last product adds to y
    internal::copy(run, x, y);
    return branch(y, true);
  }
  branch(whole, false);
  sum(run, whole, y);
  if (dropout.is_on(run)) dropout.apply(run, y, y, x.shape[1]);
  internal::add(run, x, y, y);
}

template <class Inner>
TensorView PreNormBlock<Inner>::enter_branch(const Run& run, const Dropout& dropout,
                                             const TensorView& dy, const TensorView& memory) const {
  const bool drops = dropout.is_on(run);
  if (!drops && row_parts(run.layout) == 1) return dy;
  const TensorView own = drops ? own_rows(run, memory) : dy;
  if (drops) dropout.apply(run, dy, own, dy.shape[1]);
  gather(run, own, memory);
  return memory;
}

template <class Inner>
void PreNormBlock<Inner>::forward(const Run& run, const Tensors& w, TensorView x, TensorView y,
                                  TensorView saved, TensorView temporary) const {
  const Pass pass = pass_of(x.spec(), run.layout);
  Carve saved_carve(saved), temporary_carve(temporary);
  const Saved s(saved_carve, *this, pass);
  const Temporary t(temporary_carve, *this, pass);
  const auto norm = [&](const Norm& by, const TensorView& in, const TensorView& out,
                        const TensorView& statistics) {
    const TensorView own = own_rows(run, out);
    by.forward(run, w, in, own, statistics);
    gather(run, own, out);
  };
  norm(norm1_, x, s.normed1, s.statistics1);
  add_branch(run, dropout1_, x, s.middle, t.sum_for(s.middle), [&](const TensorView& to, bool add) {
    attention_.forward(run, w, s.normed1, to, add, s.attention, t.rest, pass);
  });
  norm(norm2_, s.middle, s.normed2, s.statistics2);
  add_branch(run, dropout2_, s.middle, y, t.sum_for(y), [&](const TensorView& to, bool add) {
    inner_.forward(run, w, s.normed2, to, add, s.inner);
  });
}

template <class Inner>
void PreNormBlock<Inner>::backward_input(const Run& run, const Tensors& w, TensorView dy,
                                         TensorView x, TensorView saved, TensorView carry,
                                         TensorView temporary, TensorView dx) const {
  const Pass pass = pass_of(x.spec(), run.layout);
  Carve saved_carve(saved), carry_carve(carry), temporary_carve(temporary);
  const Saved s(saved_carve, *this, pass);
  const Carry c(carry_carve, *this, pass);
  const Temporary t(temporary_carve, *this, pass);
  const TensorView dnormed2 = t.sum_for(c.dnormed2), dnormed1 = t.sum_for(c.dnormed1);
  inner_.backward_input(run, w, enter_branch(run, dropout2_, dy, c.branch2), s.inner, c.inner,
                        t.rest, dnormed2);
  sum(run, dnormed2, c.dnormed2);
  internal::copy(run, dy, c.dmiddle);
  norm2_.backward_input(run, w, c.dnormed2, s.middle, s.statistics2, c.dmiddle, true);
  attention_.backward_input(run, w, enter_branch(run, dropout1_, c.dmiddle, c.branch1), s.attention,
                            c.attention, t.rest, dnormed1, pass);
  sum(run, dnormed1, c.dnormed1);
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
  const bool entered = dropout1_.is_on(run) || pass.row_parts > 1;
  inner_.backward_weight(run, g, entered ? c.branch2 : dy, s.normed2, s.inner, c.inner);
  norm2_.backward_weight(run, g, c.dnormed2, s.middle, s.statistics2);
  attention_.backward_weight(run, g, entered ? c.branch1 : c.dmiddle, s.normed1, s.attention,
                             c.attention, pass);
  norm1_.backward_weight(run, g, c.dnormed1, x, s.statistics1);
}

template <class Inner>
double PreNormBlock<Inner>::flops(const Spec& in) const {
  const std::int64_t rows = in.shape[0] * in.shape[1];
  return attention_.flops(rows, in.shape[1]) + inner_.flops(rows);
}

/// Attention and MLP gather their inputs and sum their outputs, in forward and in backward.
template <class Inner>
PassExchanges PreNormBlock<Inner>::exchanges(const Spec& in, const Layout& layout) const {
  const std::int64_t whole = Spec{in.type, in.shape}.bytes();
  Exchanged pass = gather_exchange(layout, 2 * whole);
  pass += sum_exchange(layout, 2 * whole);
  return {pass, pass};
}

template class PreNormBlock<Mlp>;
template class PreNormBlock<SwiGlu>;

}  // namespace troupe::train::parts

// Tests check_gradients(): it finds and names the mistake in a user's layer.
#include "troupe/train/layers/check.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::train {
namespace {

/// A mistake that a user may make.
enum class Mistake {
  none,
  factor,       // in dx
  one_element,  // of the weight gradient
  adds_to_dx,
  writes_gradient,
  half_written,  // dx
  needs_dx,
  past_saved,
  past_carry,
  past_temporary,
  past_output,
  changes_input,
  remembers_temporary,
  another_each_time,
  keeps_ids,
};

/// A layer y[r, c] = x[r, c] * w[c] with one mistake.
class Scale final : public Layer {
 public:
  Scale(std::int64_t channels, Mistake mistake)
      : Layer("scale"), channels_(channels), mistake_(mistake) {}

  void declare(Index& index, int unit, const Layout&) override {
    const TensorId id = index.add(unit, name() + ".weight", {channels_}, Group::no_decay);
    if (w_ < 0 || !is(Mistake::keeps_ids)) w_ = id;
  }
  void initialize(const Run& run, const Tensors& w) const override { fill_value(run, w, w_, 1); }
  Need need(const Spec& in, const Layout&) const override {
    return {.out = in, .saved = 256, .carry = 256, .temporary = 256};
  }
  void forward(const Run&, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView temporary) const override {
    for (std::int64_t i = 0; i < x.count(); ++i)
      y.as<double>()[i] = x.as<double>()[i] * w[w_].as<double>()[i % channels_];
    saved.as<double>()[past(Mistake::past_saved)] = 7;
    temporary.as<double>()[past(Mistake::past_temporary)] = 7;
    temporary.as<double>()[0] = 1;
    if (is(Mistake::past_output)) y.as<double>()[y.count()] = 7;
    if (is(Mistake::changes_input)) x.as<double>()[1] += 1e-3;
    if (is(Mistake::another_each_time)) y.as<double>()[0] += static_cast<double>(++calls_);
  }
  void backward_input(const Run&, const Tensors& w, TensorView dy, TensorView, TensorView,
                      TensorView carry, TensorView temporary, TensorView dx) const override {
    carry.as<double>()[past(Mistake::past_carry)] = 7;
    carry.as<double>()[1] = dx.data == nullptr ? 0 : 1;
    if (dx.data == nullptr) return;
    const double factor = is(Mistake::remembers_temporary) ? temporary.as<double>()[0]
                          : is(Mistake::factor)            ? 1.0001
                                                           : 1;
    const std::int64_t written = is(Mistake::half_written) ? dx.count() / 2 : dx.count();
    for (std::int64_t i = 0; i < written; ++i) {
      const double d = factor * dy.as<double>()[i] * w[w_].as<double>()[i % channels_];
      dx.as<double>()[i] = is(Mistake::adds_to_dx) ? dx.as<double>()[i] + d : d;
    }
  }
  void backward_weight(const Run&, const Tensors& g, TensorView dy, TensorView x, TensorView,
                       TensorView carry, TensorView) const override {
    double* dw = g[w_].as<double>();
    const double factor = is(Mistake::needs_dx) ? carry.as<double>()[1] : 1;
    if (is(Mistake::writes_gradient))
      for (std::int64_t c = 0; c < channels_; ++c) dw[c] = 0;
    for (std::int64_t i = 0; i < x.count(); ++i)
      if (!is(Mistake::one_element) || i != 1)
        dw[i % channels_] += factor * dy.as<double>()[i] * x.as<double>()[i];
  }
  double flops(const Spec& in) const override { return static_cast<double>(in.count()); }

 private:
  bool is(Mistake mistake) const { return mistake_ == mistake; }
  /// Returns the index of the last of 32 doubles, or one more with the mistake.
  std::ptrdiff_t past(Mistake mistake) const { return is(mistake) ? 32 : 31; }

  std::int64_t channels_;
  Mistake mistake_;
  TensorId w_ = -1;
  mutable int calls_ = 0;
};

std::string found(Mistake mistake) {
  Scale layer(3, mistake);
  try {
    check_gradients(layer, {.input = {DType::f64, {2, 5, 3}}});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(CheckGradients, ReportsARightLayer) {
  Scale layer(3, Mistake::none);
  const GradientReport report = check_gradients(layer, {.input = {DType::f64, {2, 5, 3}}});
  ASSERT_EQ(report.tensors.size(), 2u);
  EXPECT_EQ(report.tensors[0].tensor, "scale.weight");
  EXPECT_EQ(report.tensors[1].tensor, "input");
  EXPECT_LT(report.worst().relative, 1e-8);
  EXPECT_NE(report.text().find("scale.weight: relative error"), std::string::npos);
}

TEST(CheckGradients, FindsEveryMistakeAndNamesIt) {
  const std::pair<Mistake, const char*> mistakes[] = {
      {Mistake::factor, "scale: the gradient of input"},
      {Mistake::one_element, "scale: the gradient of scale.weight"},
      {Mistake::adds_to_dx, "dx without a number at element 0"},
      {Mistake::writes_gradient, "must be added to"},
      {Mistake::half_written, "dx without a number at element 15"},
      {Mistake::needs_dx, "not need dx"},
      {Mistake::past_saved, "forward() writes outside its saved bytes"},
      {Mistake::past_carry, "backward_input() writes outside its carry bytes"},
      {Mistake::past_temporary, "forward() writes outside its temporary bytes"},
      {Mistake::past_output, "forward() writes outside y"},
      {Mistake::changes_input, "gives other outputs"},
      {Mistake::remembers_temporary, "dx without a number"},
      {Mistake::another_each_time, "gives other outputs"},
      {Mistake::keeps_ids, "must forget the ids"},
  };
  for (const auto& [mistake, sentence] : mistakes)
    EXPECT_NE(found(mistake).find(sentence), std::string::npos) << found(mistake);
}

/// Half the sum of squares of each row. Its gradient contains the loss scale, or by mistake does
/// not.
class Squares final : public Layer {
 public:
  explicit Squares(bool scales) : Layer("squares"), scales_(scales) {}
  void declare(Index&, int, const Layout&) override {}
  void initialize(const Run&, const Tensors&) const override {}
  Need need(const Spec& in, const Layout&) const override {
    return {.out = {in.type, {in.shape[0]}}};
  }
  void forward(const Run&, const Tensors&, TensorView x, TensorView y, TensorView,
               TensorView) const override {
    for (std::int64_t r = 0; r < y.count(); ++r) y.as<double>()[r] = 0;
    for (std::int64_t i = 0; i < x.count(); ++i)
      y.as<double>()[i / x.columns()] += 0.5 * x.as<double>()[i] * x.as<double>()[i];
  }
  void backward_input(const Run& run, const Tensors&, TensorView, TensorView x, TensorView,
                      TensorView, TensorView, TensorView dx) const override {
    const double scale = scales_ ? run.targets->scale : 1;
    for (std::int64_t i = 0; dx.data != nullptr && i < x.count(); ++i)
      dx.as<double>()[i] = x.as<double>()[i] * scale / static_cast<double>(run.targets->total);
  }
  void backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                       TensorView) const override {}
  double flops(const Spec&) const override { return 0; }
  bool is_loss() const noexcept override { return true; }
  DType target_type() const noexcept override { return DType::f64; }

 private:
  bool scales_;
};

TEST(CheckGradients, FindsALossThatLeavesTheLossScaleOut) {
  const CheckOptions options{.input = {DType::f64, {4, 3}}, .targets = {DType::f64, {}}};
  Squares right(true), wrong(false);
  EXPECT_NO_THROW(check_gradients(right, options));
  EXPECT_THROW(check_gradients(wrong, options), InvalidArgument);
}

TEST(CheckGradients, FindsOneWrongElementThatItDoesNotTry) {
  Scale layer(200, Mistake::one_element);
  CheckOptions options{.input = {DType::f64, {3, 200}}};
  options.elements = 2;  // checks elements 0 and 100; the wrong one is 1
  try {
    check_gradients(layer, options);
    ADD_FAILURE() << "element 1 is wrong";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("along a random direction"), std::string::npos);
  }
}

}  // namespace
}  // namespace troupe::train

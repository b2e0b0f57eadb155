// Runs layers on several tensor-parallel ranks, each a thread with a workbench. Returns their
// joint results: outputs, losses and gradients of whole tensors.
#pragma once

#include "troupe/actors/collective/local/local.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/layers/internal/workbench.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::train::divided {

using internal::number;
using internal::set_number;
using internal::Workbench;

/// A test case: the layers, their input, and the numbers of classes and ids.
struct Case {
  std::function<Model()> model;
  Spec input;  ///< its type is the layout's, or i32
  std::int64_t classes = 2, ids = 2;
  Recompute recompute = Recompute::none;
};

/// Returns a number that depends on the two arguments only.
inline double value_at(std::uint64_t stream, std::int64_t element) {
  return 2 * kernels::philox_uniform(11, stream, static_cast<std::uint64_t>(element)) - 1.0;
}

/// Calls f(local element, element of the whole tensor) for each element of a tensor that this
/// rank has.
template <class F>
void for_each_element(const Index& index, TensorId id, F&& f) {
  const TensorPlace& place = index[id];
  const int axis = std::max(place.shard.axis, 0);
  std::int64_t outer = 1, inner = 1, first = 0;
  for (int i = 0; i < axis; ++i) outer *= place.global[i];
  for (int i = axis + 1; i < place.global.rank(); ++i) inner *= place.global[i];
  for (const Box& box : index.global(id)) {
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t a = 0; a < box.size[axis]; ++a)
        for (std::int64_t i = 0; i < inner; ++i)
          f((o * place.local[axis] + first + a) * inner + i,
            (o * place.global[axis] + box.first[axis] + a) * inner + i);
    first += box.size[axis];
  }
}

/// One rank's workbench. Its values depend only on the elements of whole tensors.
class Rank {
 public:
  Rank(const Case& c, const Layout& layout, collective::Communicator* tp)
      : tp_(tp), model_(c.model()), bench_(layers(), options(c, layout, tp)) {
    bench_.initialize();
    for (const TensorId id : bench_.tensors()) {
      const std::string& name = bench_.index()[id].name;
      const std::uint64_t stream = hash_bytes(name.data(), name.size());
      for_each_element(bench_.index(), id, [&](std::int64_t local, std::int64_t global) {
        const TensorView w = bench_.weights(id);
        set_number(w, local, number(w, local) + 0.3 * value_at(stream, global));
      });
    }
    fill(bench_.input(), 1, c.ids);
    if (bench_.ends_in_loss())
      fill(bench_.targets(), 3, c.classes);
    else
      fill(bench_.direction(), 2, 1);
    if (bench_.ends_in_loss()) *bench_.targets().as<std::int32_t>() = -1;  // one target is ignored
  }
  Workbench& bench() { return bench_; }
  collective::Communicator* tp() { return tp_; }
  /// Returns the element of the whole tensor that is the first of this view.
  std::int64_t first_of(const TensorView& view) const {
    return view.parts == 1 ? 0 : tp_->rank() * view.count();
  }

 private:
  static internal::WorkbenchOptions options(const Case& c, const Layout& how,
                                            collective::Communicator* tp) {
    Layout layout = how;
    layout.recompute = c.recompute;
    Spec input = c.input;
    if (input.type != DType::i32) {
      input.type = layout.compute;
      if (layout.sequence) input.parts = layout.tp;
    }
    return {.layout = layout, .input = input, .tp = tp};
  }
  std::vector<Layer*> layers() const {
    std::vector<Layer*> all;
    for (const auto& layer : model_) all.push_back(layer.get());
    return all;
  }
  void fill(const TensorView& view, std::uint64_t stream, std::int64_t end) {
    for (std::int64_t i = 0; i < view.count(); ++i) {
      const double value = value_at(stream, first_of(view) + i);
      if (view.type == DType::i32)
        view.as<std::int32_t>()[i] =
            static_cast<std::int32_t>((value + 1) / 2 * static_cast<double>(end));
      else
        set_number(view, i, value);
    }
  }

  collective::Communicator* tp_;
  Model model_;
  Workbench bench_;
};

using RankBody = std::function<void(Rank&)>;

/// Runs the body on every rank; throws what the first of them threw.
inline void on_tensor_ranks(const Case& c, const Layout& layout, const RankBody& body) {
  auto group = collective::local_group(layout.tp);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(layout.tp));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < layout.tp; ++rank)
    threads.emplace_back([&, r = static_cast<std::size_t>(rank)] {
      const kernels::FlushDenormals flush;
      try {
        Rank context(c, layout, layout.tp == 1 ? nullptr : group[r].get());
        body(context);
      } catch (...) {
        errors[r] = std::current_exception();
        group[r]->abort("a rank's body threw");
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

/// Results for whole tensors; gradients by name, with that of the "input".
struct Outcome {
  double loss = 0;
  std::vector<double> output;
  std::map<std::string, std::vector<double>> gradients;
};

namespace detail {

inline std::vector<double> numbers_of(const TensorView& view) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < view.count(); ++i) all.push_back(number(view, i));
  return all;
}

/// The results of one rank.
struct Piece {
  double loss = 0;
  std::vector<double> output, input;
  bool divided_output = false, divided_input = false;
  std::map<TensorId, std::vector<double>> gradients;
};

/// Returns the ranks' parts joined, where they are divided. Otherwise all ranks must have equal
/// bits.
inline std::vector<double> joined(const std::vector<Piece>& pieces,
                                  std::vector<double> Piece::* part, bool divided) {
  std::vector<double> all = pieces[0].*part;
  for (std::size_t r = 1; r < pieces.size(); ++r) {
    const std::vector<double>& piece = pieces[r].*part;
    if (divided)
      all.insert(all.end(), piece.begin(), piece.end());
    else
      EXPECT_EQ(piece, all) << "rank " << r << " has other bits of what is replicated";
  }
  return all;
}

/// Returns the whole gradient of a tensor from the gradients of the ranks.
inline std::vector<double> whole_of(const std::vector<Piece>& pieces,
                                    const std::vector<Index>& indices, TensorId id) {
  const TensorPlace& place = indices[0][id];
  std::vector<double> whole(static_cast<std::size_t>(place.global.count()), 0.0);
  if (place.shard.axis < 0 && !place.shard.partial) {
    for (const Piece& piece : pieces)
      EXPECT_EQ(piece.gradients.at(id), pieces[0].gradients.at(id))
          << place.name << " is replicated, and ranks have other bits of its gradient";
    return pieces[0].gradients.at(id);
  }
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    double sum = 0, tensor = 0;
    const std::vector<double>& mine = pieces[r].gradients.at(id);
    for_each_element(indices[r], id, [&](std::int64_t local, std::int64_t global) {
      whole[static_cast<std::size_t>(global)] += mine[static_cast<std::size_t>(local)];
      tensor += std::abs(mine[static_cast<std::size_t>(local)]);
    });
    for (const double g : mine) sum += std::abs(g);
    EXPECT_EQ(sum, tensor) << place.name << ": padding has a gradient";
  }
  return whole;
}

}  // namespace detail

inline Outcome outcome_of(const Case& c, const Layout& layout) {
  const auto ranks = static_cast<std::size_t>(layout.tp);
  std::vector<detail::Piece> pieces(ranks);
  std::vector<Index> indices(ranks);
  on_tensor_ranks(c, layout, [&](Rank& rank) {
    const auto r = static_cast<std::size_t>(rank.tp() == nullptr ? 0 : rank.tp()->rank());
    Workbench& bench = rank.bench();
    detail::Piece& piece = pieces[r];
    piece.loss = bench.forward();
    piece.output = detail::numbers_of(bench.output());
    piece.divided_output = bench.output().parts > 1;
    piece.divided_input = bench.input().parts > 1;
    bench.fill_gradients(0);
    bench.backward();
    if (bench.input().type != DType::i32) piece.input = detail::numbers_of(bench.input_gradient());
    for (const TensorId id : bench.tensors()) piece.gradients[id] = bench.whole_gradient(id);
    indices[r] = bench.index();
  });
  Outcome outcome{.loss = pieces[0].loss};
  outcome.output = detail::joined(pieces, &detail::Piece::output, pieces[0].divided_output);
  outcome.gradients["input"] =
      detail::joined(pieces, &detail::Piece::input, pieces[0].divided_input);
  for (const auto& [id, gradient] : pieces[0].gradients)
    outcome.gradients[indices[0][id].name] = detail::whole_of(pieces, indices, id);
  return outcome;
}

inline double length(const std::vector<double>& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares);
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

/// Returns the norm of the whole gradient.
inline double norm_of(const Outcome& outcome) {
  std::vector<double> lengths;
  for (const auto& [name, gradient] : outcome.gradients)
    if (name != "input") lengths.push_back(length(gradient));
  return length(lengths);
}

/// Expects ‖Δ‖ <= tolerance * ‖g‖ for every tensor. The exact gradient of key biases is zero, so
/// theirs is noise: it is compared with the norm of all gradients.
inline void expect_equal(const Outcome& got, const Outcome& expected, double tolerance) {
  EXPECT_LE(distance(got.output, expected.output), tolerance * length(expected.output));
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  const double norm = norm_of(expected);
  for (auto [name, gradient] : got.gradients) {
    std::vector<double> reference = expected.gradients.at(name);
    if (name.ends_with("c_attn.bias")) {
      const auto third = static_cast<std::ptrdiff_t>(gradient.size() / 3);
      for (std::vector<double>* g : {&gradient, &reference}) {
        EXPECT_LE(length({g->begin() + third, g->begin() + 2 * third}), tolerance * norm);
        g->erase(g->begin() + third, g->begin() + 2 * third);
      }
    }
    EXPECT_LE(distance(gradient, reference), tolerance * length(reference)) << name;
    if (name != "input" || !reference.empty()) {
      EXPECT_GT(length(reference), 0) << name;
    }
  }
}

}  // namespace troupe::train::divided

/// A model of odd sizes without layers, and ranks that train it on made-up gradients. The store's
/// promises do not depend on the source of gradients.
#pragma once

#include "troupe/actors/collective/local/local.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/train/optimizers/norm.hpp"
#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/store.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace troupe::train::testing {

/// Returns an index with an embedding, two blocks, a head that is tied to the embedding, and a
/// unit without tensors. No size is a multiple of another.
inline Index odd_model(int dp) {
  Index index;
  const int embedding = index.begin_unit("embedding");
  const TensorId wte = index.add(embedding, "wte", {65, 33}, Group::decay);
  index.add(embedding, "wpe", {31, 33}, Group::decay);
  for (const std::string name : {"h.0", "h.1"}) {
    const int block = index.begin_unit(name);
    index.add(block, name + ".ln", {33}, Group::no_decay);
    index.add(block, name + ".weight", {99, 33}, Group::decay);
    index.add(block, name + ".bias", {99}, Group::no_decay);
  }
  const int head = index.begin_unit("head");
  index.add(head, "ln_f", {1}, Group::no_decay);
  index.tie(head, wte);
  index.begin_unit("loss");
  index.seal({.dp = dp});
  return index;
}
inline constexpr std::int64_t kParameters = 65 * 33 + 31 * 33 + 2 * (33 + 99 * 33 + 99) + 1;
inline constexpr std::int64_t kTied = 65 * 33;

/// Returns a number in [-1, 1) that depends on all arguments.
inline float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u + d;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<double>((x ^ (x >> 31)) >> 40) / (1 << 23) - 1.0);
}

/// Runs the body once for each rank, on a thread of its own; throws what one of them threw.
inline void on_ranks(int ranks, const std::function<void(int, collective::Communicator*)>& body) {
  auto group = collective::local_group(ranks, {.progress = collective::Progress::thread});
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const kernels::FlushDenormals flush;
      const auto r = static_cast<std::size_t>(rank);
      try {
        body(rank, ranks == 1 ? nullptr : group[r].get());
      } catch (...) {
        errors[r] = std::current_exception();
        group[r]->abort("a rank's body threw");
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

/// One rank's run of a few steps.
class Learner {
 public:
  struct Options {
    int zero = 0, ranks = 1, micro = 1;
    bool offload = false;
    OptimizerOptions optimizer = {};
    DType weights = DType::f32;
    /// Gives the gradient for (rank, micro-batch, step, element).
    std::function<float(int, int, int, std::uint64_t)> gradient = [](int rank, int micro, int step,
                                                                     std::uint64_t element) {
      return noise(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(micro),
                   static_cast<std::uint64_t>(step), element);
    };
  };

  Learner(const Options& options, int rank, collective::Communicator* dp)
      : options_(options),
        rank_(rank),
        dp_(dp),
        index_(odd_model(options.ranks)),
        device_(kernels::cpu_device()),
        store_(index_, device_,
               {.zero = options.zero,
                .dp_rank = rank,
                .offload = options.offload,
                .moments = options.optimizer.moments(),
                .weights = options.weights},
               dp) {
    for (int unit = 0; unit < units(); ++unit) {
      store_.gather(unit);
      store_.begin_initial(unit);
      for (const TensorId id : place(unit).tensors)
        write(store_.initial_of(id),
              [&](std::uint64_t i) { return noise(999, static_cast<std::uint64_t>(id), 0, i); });
      store_.keep_weights(unit);
      store_.release(unit);
    }
  }

  int units() const { return static_cast<int>(index_.units().size()); }
  Store& store() { return store_; }
  kernels::Device& device() { return device_; }
  const Index& index() const { return index_; }

  /// Makes a step. It gathers units as forward and backward do, one ahead.
  void step() {
    ++steps_;
    store_.zero_gradients();
    for (int micro = 0; micro < options_.micro; ++micro) {
      store_.gather(0);
      for (int unit = 0; unit < units(); ++unit) visit(unit, unit + 1);
      store_.gather(units() - 1);
      for (int unit = units(); unit-- > 0;) {
        visit(unit, unit - 1);
        backward(unit, micro);
      }
    }
    const double norm = global_norm(device_, store_, {.dp = dp_});
    norms.push_back(norm);
    const float clip = clip_factor(norm, options_.optimizer.max_norm);
    for (int unit = 0; unit < units(); ++unit) {
      update_owned(device_, index_, unit, store_.owned(unit), options_.optimizer,
                   options_.optimizer.rate, steps_, clip);
      store_.publish(unit);
    }
  }

  /// Returns weights and moments by tensor, without padding.
  std::vector<float> values() {
    std::vector<float> all;
    for (int unit = 0; unit < units(); ++unit)
      for (int part = 0; part <= options_.optimizer.moments(); ++part) {
        std::vector<float> slab(static_cast<std::size_t>(place(unit).size));
        store_.read_whole(unit, static_cast<Part>(part), slab);
        for (const TensorId id : place(unit).tensors) {
          const auto first = slab.begin() + index_[id].offset;
          all.insert(all.end(), first, first + index_[id].local.count());
        }
      }
    return all;
  }

  std::vector<double> norms;

 private:
  const UnitPlace& place(int unit) const { return index_.units()[static_cast<std::size_t>(unit)]; }
  static void write(const TensorView& to, const std::function<float(std::uint64_t)>& value) {
    for (std::int64_t i = 0; i < to.count(); ++i)
      to.as<float>()[i] += value(static_cast<std::uint64_t>(i));
  }
  void visit(int unit, int next) {
    if (next >= 0 && next < units()) store_.gather(next);
    store_.weights(unit);
    store_.release(unit);
  }
  void backward(int unit, int micro) {
    const bool last = micro + 1 == options_.micro;
    if (store_.options().zero >= 2 && unit + 3 < units()) store_.finish_reduce(unit + 3);
    store_.begin_gradients(unit);
    const auto add = [&](TensorId id) {
      write(store_.gradients_of(id), [&](std::uint64_t i) {
        return options_.gradient(rank_, micro, static_cast<int>(steps_),
                                 static_cast<std::uint64_t>(id) * 1000003 + i);
      });
    };
    for (const TensorId id : place(unit).tensors) add(id);
    for (const TensorId id : place(unit).tied) add(id);
    if (last) store_.add_tied(unit);
    if (last || store_.options().zero >= 2) store_.reduce(unit);
  }

  Options options_;
  int rank_;
  collective::Communicator* dp_;
  Index index_;
  kernels::Device device_;
  Store store_;
  std::int64_t steps_ = 0;
};

}  // namespace troupe::train::testing

/// Layer: what a model is made of, and what a user writes for a layer of their own. Explicit: no
/// tape. Input and weight gradients are two calls, so that a schedule may send the first on and do
/// the second later.
///
///     class Scale : public Layer {                                  // y = x * w, elementwise
///       void declare(Index& index, int unit, const Layout&) override {
///         w_ = index.add(unit, name() + ".weight", {channels_}, Group::no_decay);
///       }
///       ...
///     };
///
/// A layer holds names and sizes, no values: weights, gradients and activations come as views.
///
/// Tensor parallelism: with layout.tp > 1 every rank of Run::tp makes the same calls with the same
/// inputs. A layer that says nothing of it is replicated: it declares whole tensors, and must write
/// equal bits on all ranks, gradients too. A layer that divides its tensors declares shards
/// (TensorShard) and communicates over Run::tp; layers/parts/parallel.hpp has the operations. With
/// layout.sequence the input may come as this rank's rows (Spec::parts). Then either need() refuses
/// it, or the layer computes these rows and declares its whole tensors `partial`.
///
/// `tests/train/layers` and train::check_gradients() hold each layer against finite differences.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/params/index.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::train {

/// What a loss compares with, and what its gradient is divided by.
struct Targets {
  TensorView values;       ///< i32 ids, kernels::kIgnore for none; or of Layer::target_type()
  std::int64_t total = 1;  ///< targets of the whole step, over all ranks and micro-batches
  double scale = 1;        ///< multiplies the gradient, not the loss: the loss scale of an f16 run
};

/// How a pass runs: the same for all layers of it.
struct Run {
  kernels::Device& device;
  const Layout& layout;
  collective::Communicator* tp = nullptr;  ///< of layout.tp ranks; null for one
  /// Of weights and activations; f64 in check_gradients. Gradients of weights are f32 beside f32,
  /// bf16 and f16, and so are statistics and losses.
  DType type = DType::f32;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::span<const std::int64_t> samples =
      {};                            ///< numbers of the batch's samples in the step's order
  const Targets* targets = nullptr;  ///< for losses
  /// Dropout is on, and a loss prepares its gradient. When false, no backward follows.
  bool training = true;

  kernels::Queue& queue() const { return device.compute(); }
  const kernels::Kernels& k() const { return device.kernels(); }
};

/// Some unit's weights or gradients, by tensor.
class Tensors {
 public:
  using Find = std::function<TensorView(TensorId)>;
  Tensors(const Index& index, Find find) : index_(&index), find_(std::move(find)) {}
  TensorView operator[](TensorId id) const { return find_(id); }
  const TensorPlace& place(TensorId id) const { return (*index_)[id]; }
  const Index& index() const noexcept { return *index_; }

 private:
  const Index* index_;
  Find find_;
};

/// What a layer needs for one pass over an input; bytes of its type.
struct Need {
  Spec out;
  std::int64_t saved = 0;      ///< written by forward, read by both backwards
  std::int64_t carry = 0;      ///< written by backward_input, read by backward_weight
  std::int64_t temporary = 0;  ///< of any one call
};

/// Bytes that tensor-parallel ranks exchange: of the larger side of each operation.
struct Exchanged {
  std::int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0;
  Exchanged& operator+=(const Exchanged& more) noexcept {
    all_reduce += more.all_reduce;
    reduce_scatter += more.reduce_scatter;
    all_gather += more.all_gather;
    return *this;
  }
};
/// In one forward pass and in both backward calls together.
struct PassExchanges {
  Exchanged forward, backward;
};

class TROUPE_API Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer();

  /// Begins the names of its tensors: "transformer.h.0".
  const std::string& name() const noexcept { return name_; }

  /// Adds its tensors to the unit. It may be called again, for another index: then it forgets the
  /// ids of the earlier one.
  virtual void declare(Index& index, int unit, const Layout& layout) = 0;
  /// Writes the initial weights, which are f32 (f64 in check_gradients): a function of (run.seed,
  /// tensor name, global element) alone; see fill_normal().
  virtual void initialize(const Run& run, const Tensors& w) const = 0;
  /// Throws InvalidArgument when it cannot take such an input.
  virtual Need need(const Spec& in, const Layout& layout) const = 0;

  /// All views are as need() says; `saved`, `carry` and `temporary` are bytes, 256-byte aligned.
  virtual void forward(const Run& run, const Tensors& w, TensorView x, TensorView y,
                       TensorView saved, TensorView temporary) const = 0;
  /// Writes dx, unless dx.data is null (the first layer). dy and dx are apart. A loss layer has no
  /// dy: its gradient is that of sum(y) * run.targets->scale / run.targets->total.
  virtual void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                              TensorView saved, TensorView carry, TensorView temporary,
                              TensorView dx) const = 0;
  /// Adds to the gradients g. Needs no weights.
  virtual void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                               TensorView saved, TensorView carry, TensorView temporary) const = 0;
  /// Of one forward pass, of all tensor-parallel ranks; backward counts twice that.
  virtual double flops(const Spec& in) const = 0;
  /// What it moves over Run::tp for an input that need() takes, so that a plan can say it. By
  /// default nothing, as a replicated layer does.
  virtual PassExchanges exchanges(const Spec& in, const Layout& layout) const;
  /// Whether its output is a loss per row, and it ends a model.
  virtual bool is_loss() const noexcept { return false; }
  /// Losses only: the type of its targets.
  virtual DType target_type() const noexcept { return DType::i32; }
  /// Whether full recompute keeps its saved memory all the same: embeddings, heads.
  virtual bool keeps_saved() const noexcept { return is_loss(); }

  /// Losses only: what predict() writes and its temporary bytes; saved and carry are 0. By default
  /// the output is the input.
  virtual Need prediction_need(const Spec& in, const Layout& layout) const;
  /// Losses only: what is compared with targets (logits), for inference. Reads no targets.
  virtual void predict(const Run& run, const Tensors& w, TensorView x, TensorView y,
                       TensorView temporary) const;

 private:
  std::string name_;
};

/// In the order of forward. The last one is a loss.
using Model = std::vector<std::unique_ptr<Layer>>;

/// The tensors of a model and their places on rank `tp_rank` of those that divide tensors, one unit
/// a layer, in the order of its layers; not sealed. Declares the layers' tensors: from then on the
/// layers know those of this index.
TROUPE_API Index declare(const Model& model, const Layout& layout = {}, int tp_rank = 0);

/// Normal numbers by (run.seed, tensor name, element of the whole tensor), so that every layout
/// begins with the same weights.
TROUPE_API void fill_normal(const Run& run, const Tensors& w, TensorId id, float deviation);
TROUPE_API void fill_value(const Run& run, const Tensors& w, TensorId id, float value);

/// Hands out aligned parts of a layer's bytes, the same in need() (over a null pointer) and in use.
///
///     Carve carve(saved);
///     TensorView norm = carve.take(run.type, {rows, channels});
class TROUPE_API Carve {
 public:
  Carve() = default;  ///< counts only
  explicit Carve(const TensorView& bytes) : next_(bytes.as<std::byte>()) {}
  /// Throws InvalidArgument when that is more than 2^58 bytes in all.
  TensorView take(const Spec& spec);
  TensorView take(DType type, const Shape& shape) { return take(Spec{type, shape}); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* next_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace troupe::train

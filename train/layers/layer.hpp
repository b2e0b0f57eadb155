/// Layer: the interface of the parts of a model, which users implement for layers of their own.
/// There is no autograd tape: each layer has explicit backward calls. Input and weight gradients
/// are two calls, so a schedule can send the input gradient to the previous stage first.
///
///     class Scale : public Layer {                                  // y = x * w, elementwise
///       void declare(Index& index, int unit, const Layout&) override {
///         w_ = index.add(unit, name() + ".weight", {channels_}, Group::no_decay);
///       }
///       ...
///     };
///
/// A layer holds names and sizes, but no values: weights, gradients and activations come as
/// views.
///
/// Tensor parallelism: with layout.tp > 1 every rank of Run::tp makes the same calls with the
/// same inputs. By default a layer is replicated: it declares whole tensors, and must write equal
/// bits on all ranks, gradients too. A layer that divides its tensors declares shards
/// (TensorShard) and communicates over Run::tp; layers/parts/parallel.hpp has the operations.
/// With layout.sequence the input may be this rank's rows (Spec::parts). Then either need()
/// refuses it, or the layer computes these rows and declares its whole tensors `partial`.
///
/// train::check_gradients() (layers/check.hpp) compares a layer's gradients with finite
/// differences.
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

/// The targets that a loss compares with, and the factors of its gradient.
struct Targets {
  TensorView values;       ///< i32 ids, kernels::kIgnore for none; or values of
                           ///< Layer::target_type()
  std::int64_t total = 1;  ///< counted targets of the whole step, over all ranks and micro-batches
  double scale = 1;        ///< the loss scale of an f16 run: multiplies the gradient, not the loss
};

/// The settings of a pass, the same for all its layers.
struct Run {
  kernels::Device& device;
  const Layout& layout;
  collective::Communicator* tp = nullptr;  ///< of layout.tp ranks; null for one
  /// Type of weights and activations; f64 in check_gradients. For f32, bf16 and f16, the
  /// gradients of weights, statistics and losses are f32.
  DType type = DType::f32;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::span<const std::int64_t> samples =
      {};                            ///< numbers of the batch's samples in the step's order
  const Targets* targets = nullptr;  ///< for losses
  /// Whether dropout is on and a loss prepares its gradient. When false, no backward follows.
  bool training = true;

  kernels::Queue& queue() const { return device.compute(); }
  const kernels::Kernels& k() const { return device.kernels(); }
};

/// Views of weights or gradients, by tensor.
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

/// The output and the bytes of memory that a layer needs for one pass over an input.
struct Need {
  Spec out;
  std::int64_t saved = 0;      ///< written by forward, read by both backward calls
  std::int64_t carry = 0;      ///< written by backward_input, read by backward_weight
  std::int64_t temporary = 0;  ///< for the duration of any one call
};

/// Bytes that tensor-parallel ranks exchange; for each operation the size of its larger side.
struct Exchanged {
  std::int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0;
  Exchanged& operator+=(const Exchanged& more) noexcept {
    all_reduce += more.all_reduce;
    reduce_scatter += more.reduce_scatter;
    all_gather += more.all_gather;
    return *this;
  }
};
/// Exchanges of one forward pass, and of both backward calls together.
struct PassExchanges {
  Exchanged forward, backward;
};

class TROUPE_API Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer();

  /// The prefix of its tensors' names, such as "transformer.h.0".
  const std::string& name() const noexcept { return name_; }

  /// Adds the layer's tensors to the unit and stores their ids. A call for another index must
  /// replace the ids of the earlier one.
  virtual void declare(Index& index, int unit, const Layout& layout) = 0;
  /// Writes the initial weights in f32 (f64 in check_gradients). They must be a function of
  /// (run.seed, tensor name, global element) alone; see fill_normal().
  virtual void initialize(const Run& run, const Tensors& w) const = 0;
  /// Returns the need for an input. Throws InvalidArgument when the layer does not accept the
  /// input.
  virtual Need need(const Spec& in, const Layout& layout) const = 0;

  /// Throws InvalidArgument for values that the layer cannot take, such as ids outside of its
  /// vocabulary. The engine gives a model's first layer its inputs, on the host, before a step or
  /// a prediction begins on any rank. By default every value is good.
  virtual void check_input(const TensorView& values) const;

  /// Writes y and `saved`. All views are as need() says; `saved`, `carry` and `temporary` are
  /// bytes, 256-byte aligned.
  virtual void forward(const Run& run, const Tensors& w, TensorView x, TensorView y,
                       TensorView saved, TensorView temporary) const = 0;
  /// Writes dx, unless dx.data is null (in the first layer). dy and dx do not overlap. A loss
  /// layer has no dy: its gradient is that of sum(y) * run.targets->scale / run.targets->total.
  virtual void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                              TensorView saved, TensorView carry, TensorView temporary,
                              TensorView dx) const = 0;
  /// Adds to the gradients g. Needs no weights.
  virtual void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                               TensorView saved, TensorView carry, TensorView temporary) const = 0;
  /// Returns the floating-point operations of one forward pass on all tensor-parallel ranks
  /// together; backward counts twice as many.
  virtual double flops(const Spec& in) const = 0;
  /// Returns what the layer exchanges over Run::tp for an input that need() accepts, so that a
  /// plan can count it. By default nothing, as in a replicated layer.
  virtual PassExchanges exchanges(const Spec& in, const Layout& layout) const;
  /// Returns whether its output is one loss for each row, which ends a model.
  virtual bool is_loss() const noexcept { return false; }
  /// Losses only: returns the type of the targets.
  virtual DType target_type() const noexcept { return DType::i32; }
  /// Losses only: like check_input(), for the targets of an input `in`.
  virtual void check_targets(const Spec& in, const TensorView& targets) const;
  /// Returns whether its saved memory is kept even under full recompute, as in embeddings and
  /// heads.
  virtual bool keeps_saved() const noexcept { return is_loss(); }

  /// Losses only: returns the output and temporary bytes of predict(); saved and carry are 0. By
  /// default the output is the input.
  virtual Need prediction_need(const Spec& in, const Layout& layout) const;
  /// Losses only: writes what forward compares with targets (logits), for inference. Reads no
  /// targets.
  virtual void predict(const Run& run, const Tensors& w, TensorView x, TensorView y,
                       TensorView temporary) const;

 private:
  std::string name_;
};

/// Layers in the order of forward. The last one is a loss.
using Model = std::vector<std::unique_ptr<Layer>>;

/// Declares the layers of a model. Returns the index, not sealed, with one unit for each layer in
/// order. `tp_rank` is the rank's index in its tensor-parallel group. From then on the layers
/// refer to the tensors of this index.
TROUPE_API Index declare(const Model& model, const Layout& layout = {}, int tp_rank = 0);

/// Fills a tensor with normal numbers by (run.seed, tensor name, element of the whole tensor), so
/// that every layout begins with the same weights.
TROUPE_API void fill_normal(const Run& run, const Tensors& w, TensorId id, float deviation);
TROUPE_API void fill_value(const Run& run, const Tensors& w, TensorId id, float value);

/// Cuts aligned parts from a layer's bytes. Over a null pointer it only counts, so need() and the
/// passes can share the same code.
///
///     Carve carve(saved);
///     TensorView norm = carve.take(run.type, {rows, channels});
class TROUPE_API Carve {
 public:
  Carve() = default;  ///< counts bytes only
  explicit Carve(const TensorView& bytes) : next_(bytes.as<std::byte>()) {}
  /// Returns the next part. Throws InvalidArgument above 2^58 bytes in all.
  TensorView take(const Spec& spec);
  TensorView take(DType type, const Shape& shape) { return take(Spec{type, shape}); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* next_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace troupe::train

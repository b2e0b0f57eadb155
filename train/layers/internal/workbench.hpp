/// Workbench: a chain of layers with guarded memory for one pass, on which check_gradients()
/// works.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// Reads or writes one element of an f32 or f64 view.
double number(const TensorView& view, std::int64_t element);
void set_number(const TensorView& view, std::int64_t element, double value);

/// Memory of a view between guard bytes, which nobody may write.
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(const Spec& spec);
  Guarded(Guarded&&) noexcept = default;
  Guarded& operator=(Guarded&&) noexcept = default;
  TensorView view() const noexcept { return view_; }
  /// Fills the view with a bit pattern that is NaN.
  void poison() noexcept;
  /// Returns whether the guard bytes are unchanged.
  bool is_intact() const noexcept;
  std::uint64_t hash() const noexcept;

 private:
  std::vector<std::byte> memory_;
  TensorView view_;
};

struct WorkbenchOptions {
  Layout layout;
  Spec input;
  Spec targets{DType::i32, {}};  ///< of a loss; without dimensions: the shape of its output
  std::uint64_t seed = 1;
  std::int64_t step = 3;
  double loss_scale = 1;                   ///< a loss must multiply its gradient by it
  collective::Communicator* tp = nullptr;  ///< of layout.tp ranks; each has a workbench of its own
};

/// Runs in f32 or f64 on a CPU device of its own. Throws InvalidArgument, naming the layer and
/// the rule that it broke.
class Workbench {
 public:
  Workbench(std::vector<Layer*> layers, const WorkbenchOptions& options);

  void initialize();
  /// Writes all outputs, after poisoning every view. Returns the objective. For a chain that ends
  /// in a loss it is the sum of the losses, divided by the number of targets and multiplied by
  /// the loss scale. For other chains it is the sum of the outputs times direction().
  double forward(bool training = true);
  /// Adds to the gradients. Without `with_input`, the first layer gets no dx.
  void backward(bool with_input = true);
  void fill_gradients(double value);
  /// Returns what the last layer, a loss, predicts from its input.
  std::vector<double> predict();

  const Index& index() const noexcept { return index_; }
  /// Returns the tensors that have weights of their own.
  std::vector<TensorId> tensors() const;
  TensorView weights(TensorId id) const;
  /// Returns a tensor's gradient without those of its tied uses.
  TensorView gradients(TensorId id) const { return at(gradients_, id).view(); }
  /// Returns the sum of the gradients of a tensor and of its tied uses.
  std::vector<double> whole_gradient(TensorId id) const;
  TensorView input() const { return streams_.front().view(); }
  TensorView input_gradient() const { return dstreams_.front().view(); }
  TensorView output() const { return streams_.back().view(); }
  TensorView targets() const { return target_memory_.view(); }
  /// Returns the gradient of the output, for chains that do not end in a loss.
  TensorView direction() const { return dstreams_.back().view(); }
  std::int64_t saved_bytes() const;
  /// Hashes all outputs and all saved bytes.
  std::uint64_t forward_hash() const;
  /// Hashes what a backward pass must not change: inputs, weights, targets and the output's
  /// gradient.
  std::uint64_t read_only_hash() const;
  bool ends_in_loss() const { return layers_.back()->is_loss(); }

 private:
  static const Guarded& at(const std::vector<Guarded>& memory, TensorId id) {
    return memory[static_cast<std::size_t>(id)];
  }
  struct Pass {
    Need need;
    Guarded saved, carry, temporary;
  };
  Run run(bool training);
  void declare();
  /// Throws when the index has no such tensor, because a layer kept an id of an earlier index.
  void require_known(TensorId id) const;
  Tensors find_weights() const;
  Tensors find_gradients() const;
  void make_memory();
  void check(std::size_t layer, const char* call) const;

  std::vector<Layer*> layers_;
  WorkbenchOptions options_;
  kernels::Device device_;
  Index index_;
  std::vector<Guarded> weights_, gradients_;  // by tensor
  std::vector<Guarded> streams_, dstreams_;   // by layer, one more than layers
  std::vector<Pass> passes_;
  Guarded target_memory_;
  Targets targets_;
  std::vector<std::int64_t> samples_;
};

}  // namespace troupe::train::internal

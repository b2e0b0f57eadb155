/// Store: the values of a model's tensors on one rank (weights, gradients and moments), whole or
/// sharded over the data-parallel ranks.
///
///     Store store(index, device, {.zero = 3, .dp_rank = comm.rank()}, &comm);
///     store.gather(unit);              // begins, as a prefetch
///     use(store.weights(unit));        // waits for it
///     store.release(unit);
///     store.begin_gradients(unit);  ... backward ...  store.reduce(unit);
///     store.finish_reduce(unit);  update(store.owned(unit));  store.publish(unit);
///
/// Bytes of f32 for each parameter on each of N ranks, without padding and 4 * tied_size(): 16
/// with zero = 0; 8 + 8/N with 1; 4 + 12/N and the gradients of units in flight with 2; 16/N and
/// the units in use with 3 (Rajbhandari et al. 2020, section 3). Beside 16-bit weights there are
/// f32 master weights, which the optimizer updates (Micikevicius et al. 2018): 18; 6 + 12/N; 2 +
/// 16/N; 18/N. Gradients are f32 in every type. The planner (params/plan.hpp) computes the
/// communicator's payload; 16-bit weights are sent as 2 bytes an element.
///
/// Operations of the communicator start in the order of the calls, and every rank makes the same
/// calls. The call that needs the result of an operation throws the operation's error.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/params/index.hpp"

#include <memory>
#include <span>

namespace troupe::train {

struct StoreOptions {
  int zero = 0;
  int dp_rank = 0;
  bool offload = false;  ///< keep moments in host memory
  int moments = 2;       ///< moments that the optimizer keeps: AdamW 2, SGD with momentum 1, else 0
  DType weights = DType::f32;  ///< with bf16 and f16 there are f32 master weights as well
};

/// Values of every unit, in f32. `weights` are the master weights where there are any.
enum class Part : std::uint8_t { weights, first_moment, second_moment };

/// Use it from one thread at a time. The index, the device and the communicator must outlive it.
class TROUPE_API Store {
 public:
  /// Allocates all values as zeros. `dp` may be null when index.dp() is 1. Throws InvalidArgument
  /// when `dp` has another size than index.dp() or another rank than options.dp_rank, for an
  /// index that is not sealed, and for options out of range. Throws OutOfMemory when the device
  /// has no room.
  Store(const Index& index, kernels::Device& device, const StoreOptions& options,
        collective::Communicator* dp);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  const Index& index() const noexcept;
  const StoreOptions& options() const noexcept;

  /// Starts the all-gather of the unit's whole weights and returns at once; weights() waits for
  /// it. Counts calls: release() must be called as often. The event occurs when weights() would
  /// not wait.
  kernels::Event gather(int unit);
  /// Undoes one gather(). The last call returns the unit's slab to the pool (zero = 3), after
  /// waiting for a gather that has not ended. Throws InvalidArgument without a gather().
  void release(int unit);
  /// Returns the unit's slab of weights; it must be gathered. Waits for gather() and publish(),
  /// and throws their errors.
  kernels::Buffer weights(int unit);
  /// Returns the weights of a tensor or of a tied use. The unit of the tensor must be gathered;
  /// copies are always available.
  TensorView weights_of(TensorId id);
  /// Starts to set the unit's initial values. The caller writes them in f32 to initial_of() and
  /// then calls keep_weights(). Without master weights this is the memory of the weights, and the
  /// unit must be gathered. Sharded master weights take a whole slab for this time. One unit at a
  /// time.
  void begin_initial(int unit);
  TensorView initial_of(TensorId id);
  /// Makes the values written to initial_of() the weights, rounded to their type. The values must
  /// be the same on every rank. Throws InvalidArgument when there are master weights and
  /// begin_initial() was not called.
  void keep_weights(int unit);

  /// Provides a whole gradient slab for the unit. With zero >= 2 it takes a zeroed slab from the
  /// pool, unless the unit has one in use.
  void begin_gradients(int unit);
  /// Returns the unit's gradient slab. Call begin_gradients() first.
  kernels::Buffer gradients(int unit);
  /// Returns a tensor's gradient. The gradient of a tied use has memory of its own, and lasts
  /// until add_tied(), or until zero_gradients() for a use of a copy. Throws InvalidArgument for
  /// a copy, which has no gradient.
  TensorView gradients_of(TensorId id);
  /// Adds the gradients of tied uses to their tensors' and clears them. Call it once a step,
  /// before the reduction of the unit that has the tensors, and after begin_gradients() of it.
  void add_tied(int unit);
  /// Starts to sum the unit's gradients over the ranks and returns at once. The sums go to every
  /// rank's slab (zero = 0), or to the owners' parts. Do not touch the slab before
  /// finish_reduce(). With zero >= 2, finish_reduce() adds the sum to those of the step's earlier
  /// micro-batches and returns the slab to the pool. The event occurs when finish_reduce() would
  /// not wait.
  kernels::Event reduce(int unit);
  /// Waits for the reduction and throws its error. Does nothing without a reduce().
  void finish_reduce(int unit);

  /// Returns what this rank updates of the unit, in f32: its part, or the whole with zero = 0.
  /// Finishes the unit's reduction first.
  struct Owned {
    Range range;  ///< in the slab
    float* weights = nullptr;
    float* gradients = nullptr;
    float* moments[2] = {nullptr, nullptr};
  };
  Owned owned(int unit);
  /// Call it after an update of the unit. Rounds the master weights to the weights, if there are
  /// any. With zero 1 and 2 it then starts the all-gather of the owners' weights, and weights()
  /// waits for it. With zero = 3 nothing is sent, and the unit must not be gathered.
  kernels::Event publish(int unit);
  /// Starts a step: sets all gradients to zero, those of tied uses included.
  void zero_gradients();

  /// Gathers the whole unit's values of all ranks, padding included. `out` has as many elements
  /// as the unit's slab. Every rank calls it. Blocks.
  void read_whole(int unit, Part part, std::span<float> out);
  /// Returns whether this rank has that part of every unit whole, in f32.
  bool has_whole(Part part) const noexcept;
  /// Copies a range of the unit's slab in f32, without other ranks. The range lies in what this
  /// rank has: the whole slab if has_whole(), else index().owned(). Throws InvalidArgument for
  /// another range.
  void read_part(int unit, Part part, Range range, std::span<float> out);
  /// Copies this rank's part out of a whole unit's values.
  void write_whole(int unit, Part part, std::span<const float> in);

  /// This rank's bytes by kind, comparable with the formulas above. Their total is what the
  /// device has allocated for the store.
  struct Bytes {
    std::int64_t weights = 0, gradients = 0, moments = 0, tied = 0;
    std::int64_t copies = 0;  ///< copies of weights that another rank of the pipeline owns
    std::int64_t master = 0;  ///< master weights beside 16-bit weights
    /// Units in use and gradients in flight. The peak leaves out initial values with zero = 1.
    std::int64_t transient = 0, peak_transient = 0;
    /// Part of weights, master, gradients, moments and tied that exceeds the formulas' bytes for
    /// the parameters. For a sharded slab it is 1/N of the slab's padding, rounded up.
    std::int64_t padding = 0;
    std::int64_t host = 0;  ///< part of moments that lies in host memory
    std::int64_t total() const noexcept {
      return weights + master + gradients + moments + tied + copies + transient;
    }
  };
  Bytes bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::train

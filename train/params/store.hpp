/// The values of a model's tensors on one rank: weights, gradients and moments, whole or sharded
/// over the data-parallel ranks.
///
///     Store store(index, device, {.zero = 3, .dp_rank = comm.rank()}, &comm);
///     store.gather(unit);              // begins, as a prefetch
///     use(store.weights(unit));        // waits for it
///     store.release(unit);
///     store.begin_gradients(unit);  ... backward ...  store.reduce(unit);
///     store.finish_reduce(unit);  update(store.owned(unit));  store.publish(unit);
///
/// Bytes of f32 per parameter and rank, N ranks (padding and 4 * tied_size() beside it): zero = 0:
/// 16; 1: 8 + 8/N; 2: 4 + 12/N and the gradients of units in flight; 3: 16/N and the units in use
/// (Rajbhandari et al. 2020, section 3). With 16-bit weights there is a master of f32 that the
/// optimizer updates (Micikevicius et al. 2018): 18; 6 + 12/N; 2 + 16/N; 18/N. Gradients are f32
/// in any case. Logical payload of the communicator: LAYOUTS' formulas, padding apart; of weights
/// 2 bytes an element where they have 16 bits.
///
/// Operations of the communicator begin in the order of the calls, and every rank makes the same
/// ones. The error of an operation is thrown by the call that needs its result.
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
  bool offload = false;  ///< moments in memory of the host
  int moments = 2;       ///< slabs that the optimizer keeps: AdamW 2, SGD with momentum 1, else 0
  DType weights = DType::f32;  ///< bf16 and f16: beside a master of f32
};

/// What a store has of every unit, in f32; `weights` is the master where there is one.
enum class Part : std::uint8_t { weights, first_moment, second_moment };

/// For one thread at a time. The index, the device and the communicator must outlive it.
class TROUPE_API Store {
 public:
  /// `dp` may be null when index.dp() is 1. All values are zero. Throws InvalidArgument when `dp`
  /// has another size than index.dp() or another rank than options.dp_rank, for an index that is
  /// not sealed and for options out of range; OutOfMemory when the device has no room.
  Store(const Index& index, kernels::Device& device, const StoreOptions& options,
        collective::Communicator* dp);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  const Index& index() const noexcept;
  const StoreOptions& options() const noexcept;

  /// Begins to make the unit's whole weights readable on this rank, and returns at once; weights()
  /// waits for it. Counted: release() as often. The event happens when weights() would not wait.
  kernels::Event gather(int unit);
  /// The last one gives the unit's slab back (zero = 3), after a wait for a gather that has not
  /// ended. Throws InvalidArgument without a gather().
  void release(int unit);
  /// The unit's slab; it must be gathered. Waits for gather() and publish(), and throws their
  /// errors.
  kernels::Buffer weights(int unit);
  /// A tensor's weights, also a tied one's: its unit, or that of the tensor it is tied to, must be
  /// gathered. Copies are there at any time.
  TensorView weights_of(TensorId id);
  /// Begins to take the unit's initial values, in f32: they are written to initial_of() until
  /// keep_weights(). Without a master that is the memory of the weights, and the unit must be
  /// gathered; with one, a shared master takes a whole slab meanwhile. One unit at a time.
  void begin_initial(int unit);
  TensorView initial_of(TensorId id);
  /// What was written there, the same on every rank, becomes the weights, rounded to their type.
  /// Throws InvalidArgument when there is a master and nothing has begun.
  void keep_weights(int unit);

  /// Makes a whole gradient slab for the unit, zero where none is in use (zero >= 2 takes one from
  /// a pool).
  void begin_gradients(int unit);
  /// Must have begun.
  kernels::Buffer gradients(int unit);
  /// A tensor's gradient; a tied one has a slab of its own that lasts until add_tied(), or until
  /// zero_gradients() when it is tied to a copy. A copy has none: InvalidArgument.
  TensorView gradients_of(TensorId id);
  /// Adds the gradients of tied uses to their tensors' and clears them: once a step, before the
  /// reduction of the unit that has them. Its gradients must have begun.
  void add_tied(int unit);
  /// Begins to sum the unit's gradients over the ranks, into every rank's slab (zero = 0) or into
  /// the owner's part, and returns at once. finish_reduce() ends it; until then nobody touches the
  /// slab. zero >= 2 adds the sum to what it has of the step's earlier micro-batches and gives the
  /// slab back there. The event happens when finish_reduce() would not wait.
  kernels::Event reduce(int unit);
  /// Waits, and throws the operation's error. Nothing to do without a reduce().
  void finish_reduce(int unit);

  /// What this rank updates of the unit, all of it f32: its part, or all when zero = 0. Finishes
  /// the unit's reduction.
  struct Owned {
    Range range;  ///< of the slab
    float* weights = nullptr;
    float* gradients = nullptr;
    float* moments[2] = {nullptr, nullptr};
  };
  Owned owned(int unit);
  /// After an update: rounds the master to the weights, where there is one, and begins to give
  /// every rank the owners' weights (zero 1 and 2); weights() waits for it. zero = 3 has nothing to
  /// send: a unit is updated while it is not gathered.
  kernels::Event publish(int unit);
  /// Begins a step: gradients are zero, those of tied uses too.
  void zero_gradients();

  /// The whole unit's values of all ranks, padding included: out has as many elements as the
  /// unit's slab. Every rank calls it. Blocks.
  void read_whole(int unit, Part part, std::span<float> out);
  /// Takes this rank's part of a whole unit's values.
  void write_whole(int unit, Part part, std::span<const float> in);

  /// This rank's bytes by kind, to compare with the formulas; what they add up to is what the
  /// device has allocated for the store.
  struct Bytes {
    std::int64_t weights = 0, gradients = 0, moments = 0, tied = 0;
    std::int64_t copies = 0;  ///< of weights that another rank of the pipeline owns
    std::int64_t master = 0;  ///< beside 16-bit weights
    /// Units in use, gradients in flight. The peak does not count initial values of zero = 1.
    std::int64_t transient = 0, peak_transient = 0;
    /// Of weights, master, gradients, moments and tied: what they have beyond the formulas' share of the
    /// parameters. Of a sharded slab a rank's padding is 1/N of the slab's, rounded up.
    std::int64_t padding = 0;
    std::int64_t host = 0;  ///< of moments: in memory of the host
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

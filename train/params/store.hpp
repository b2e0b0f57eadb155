/// The values of a model's tensors on one rank: weights, gradients, master weights and moments,
/// whole or sharded over the data-parallel ranks.
///
///     Store store(index, device, {.zero = 3, .dp_rank = comm.rank()}, &comm);
///     store.gather(unit).wait();  ... forward ...  store.release(unit);
///     store.begin_gradients(unit);  ... backward ...  store.reduce(unit);
///
/// Bytes of f32 per parameter and rank, N ranks (padding and 4 * tied_size() beside it): zero = 0:
/// 16; 1: 8 + 8/N; 2: 4 + 12/N and the gradients of units in flight; 3: 16/N and the units in use
/// (Rajbhandari et al. 2020, section 3).
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
  bool offload = false;  ///< moments (and master weights) in memory of the host
  int moments = 2;       ///< slabs that the optimizer keeps: AdamW 2, SGD with momentum 1, else 0
};

/// For one thread at a time.
class TROUPE_API Store {
 public:
  /// `dp` may be null when index.dp() is 1. Throws InvalidArgument when it has another size than
  /// index.dp(), OutOfMemory when the device has no room.
  Store(const Index& index, kernels::Device& device, const StoreOptions& options,
        collective::Communicator* dp);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  const Index& index() const noexcept;
  const StoreOptions& options() const noexcept;

  /// Makes the unit's whole weights readable on this rank; counted: release() as often. Returns at
  /// once; the weights may be read when the Work is done. Below zero = 3 there is nothing to do.
  collective::Work gather(int unit);
  void release(int unit);
  /// The unit's slab; it must be gathered.
  kernels::Buffer weights(int unit);
  /// A tensor's weights, also a tied one's: its unit, or that of the tensor it is tied to, must be
  /// gathered.
  TensorView weights_of(TensorId id);

  /// Makes a whole gradient slab for the unit, zero where none is in use (zero >= 2 takes one from
  /// a pool).
  void begin_gradients(int unit);
  kernels::Buffer gradients(int unit);
  /// A tensor's gradient; a tied one has a slab of its own that lasts until add_tied().
  TensorView gradients_of(TensorId id);
  /// Adds the gradients of tied uses to their tensors' and clears them: once a step, before the
  /// reduction of the unit that has them. Its gradients must have begun.
  void add_tied(int unit);
  /// Sums the unit's gradients over the ranks: into every rank's slab (zero = 0) or into the
  /// owner's part. zero >= 2 adds the sum to what it has of earlier micro-batches and gives the
  /// slab back when the Work is done; wait for it with finish_reduce().
  collective::Work reduce(int unit);
  void finish_reduce(int unit);

  /// What this rank updates of the unit, all of it f32: its part, or all when zero = 0.
  struct Owned {
    Range range;  ///< of the slab
    float* weights = nullptr;
    float* gradients = nullptr;
    float* moments[2] = {nullptr, nullptr};
  };
  Owned owned(int unit);
  /// After an update: every rank gets the owners' weights (zero 1 and 2); else nothing to do.
  collective::Work publish(int unit);
  void zero_gradients();

  /// This rank's bytes by kind, to compare with the formulas.
  struct Bytes {
    std::int64_t weights = 0, gradients = 0, moments = 0, tied = 0;
    std::int64_t transient = 0, peak_transient = 0;  ///< units in use, gradients in flight
    std::int64_t padding = 0;                        ///< of all these
  };
  Bytes bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::train

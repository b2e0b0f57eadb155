/// Where each tensor of a model lies: units, shards, owners. Names and places without values.
///
///     Index index;
///     const int unit = index.begin_unit("h.0");
///     TensorId w = index.add(unit, "h.0.mlp.c_fc.weight", {4 * c, c}, Group::decay);
///     index.seal({.dp = 4});
///     index.owned(unit, /*dp_rank=*/1);       // the elements of the unit that rank 1 updates
///
/// A unit (a block, the embedding, the head) is what is gathered, reduced, released and offloaded
/// as a whole. Its slab holds its tensors one after the other, each aligned to 64 elements, and is
/// padded with zeros to a multiple of dp * 1,024 elements; owners are cut there, so that no chunk
/// of the global norm has two owners (Rajbhandari et al. 2020, ZeRO).
#pragma once

#include "troupe/train/params/view.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train {

using TensorId = int;

/// Elements of a chunk of the global norm, and of what an owner has at least.
inline constexpr std::int64_t kChunk = 1024;
/// Elements that the first of a tensor is aligned to in its unit.
inline constexpr std::int64_t kAlign = 64;

/// What the optimizer does with a tensor.
enum class Group : std::uint8_t {
  decay,     ///< weight decay applies: matrices
  no_decay,  ///< biases, norms
};

/// Which part of a tensor this rank has when tensor parallelism divides it.
struct TensorShard {
  int axis = -1;  ///< the divided one; -1: all of it on every rank
  int parts = 1;
  int index = 0;
  int groups = 1;        ///< equal parts of the axis that are divided each: 3 for a fused qkv
  bool partial = false;  ///< replicated, but its gradient must be summed over the parts
  /// The axis is rounded up to a multiple of the parts. What is beyond its end lies in the last
  /// shards, is zero, and is no part of the tensor. With one group.
  bool padded = false;
  friend bool operator==(const TensorShard&, const TensorShard&) = default;
};

/// A rectangle of a tensor: first element and size in every dimension.
struct Box {
  Shape first, size;
  friend bool operator==(const Box&, const Box&) = default;
};

struct Range {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const noexcept { return first + count; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct TensorPlace {
  std::string name;
  Shape global;  ///< of the whole
  Shape local;   ///< of this rank's shard, padding included
  Group group = Group::decay;
  TensorShard shard;
  int unit = 0;
  std::int64_t offset = 0;  ///< of its first element in the unit
  TensorId tied_to = -1;    ///< the tensor whose weights it shares; it has none of its own
  /// A tied use on another rank of the pipeline: its gradient comes from there.
  bool remote = false;

  /// Whether it is the copy of a tensor that another rank of the pipeline owns.
  bool is_copy() const noexcept { return unit < 0; }

  /// Of this rank's shard along an axis, without padding.
  std::int64_t size(int axis) const noexcept;
  /// Elements of this rank's shard, without padding.
  std::int64_t count() const noexcept;
};

struct UnitPlace {
  std::string name;
  std::vector<TensorId> tensors;  ///< without tied ones
  std::vector<TensorId> tied;     ///< whose weights lie in other units
  std::int64_t used = 0;          ///< elements of tensors, without any padding
  std::int64_t size = 0;          ///< of the slab, padding included
};

struct SealOptions {
  int dp = 1;  ///< ranks that share the work of the optimizer
};

class TROUPE_API Index {
 public:
  /// `tp_rank`: of this rank among those that divide tensors; layers read it in declare().
  explicit Index(int tp_rank = 0) noexcept : tp_rank_(tp_rank) {}
  int tp_rank() const noexcept { return tp_rank_; }

  int begin_unit(std::string name);
  /// Throws InvalidArgument, naming the tensor, for a second one of the name, a dimension below 1,
  /// more than 2^48 elements, a shard that does not divide its axis (unless it is padded) or is
  /// padded in groups, or after seal().
  TensorId add(int unit, std::string name, const Shape& global, Group group,
               const TensorShard& shard = {});
  /// A use of another unit's tensor by this one: the weights are those of `tensor`, the gradient
  /// has a place of its own (tied_size()) and is added to the tensor's once a step. Throws
  /// InvalidArgument for a tensor that is tied itself, or after seal().
  TensorId tie(int unit, TensorId tensor);
  /// A copy of a tensor that the first rank of a pipeline owns: weights that another rank reads and
  /// does not update. It has a name and lies among the copies, in no unit: it has no gradient, no
  /// moments, and no part in the norm, in reductions or in snapshots. Uses are tied to it. Throws
  /// InvalidArgument for a second tensor of the name, or after seal().
  TensorId add_copy(const TensorPlace& of);
  /// A use of this tensor by another rank of the pipeline, which sends the gradient here. Throws as
  /// tie().
  TensorId tie_remote(TensorId tensor);
  /// Fixes places. Once. Throws InvalidArgument for dp < 1, and for more than 2^52 elements of all
  /// tensors, padded or with tied uses.
  void seal(const SealOptions& options = {});
  bool is_sealed() const noexcept { return dp_ > 0; }
  int dp() const noexcept { return dp_; }

  const std::vector<TensorPlace>& tensors() const noexcept { return tensors_; }
  const std::vector<UnitPlace>& units() const noexcept { return units_; }
  const TensorPlace& operator[](TensorId id) const {
    return tensors_.at(static_cast<std::size_t>(id));
  }
  /// Tied uses have no name of their own.
  std::optional<TensorId> find(std::string_view name) const;

  /// What rank dp_rank of the unit's slab owns: size / dp elements.
  Range owned(int unit, int dp_rank) const;
  /// The rectangles of the whole tensor that this rank's shard is made of, in the order in which
  /// they lie along the shard's axis: one, or `groups` of them; none for a shard that is all
  /// padding.
  std::vector<Box> global(TensorId id) const;

  /// Elements that are parameters of this rank, tied ones counted once, without copies and any
  /// padding.
  std::int64_t parameter_count() const noexcept;
  /// Elements of all slabs, padding included.
  std::int64_t slab_size() const noexcept;
  /// Elements of the gradients of tied uses.
  std::int64_t tied_size() const noexcept;
  /// Elements of copies, each aligned to kAlign. Known after seal().
  std::int64_t copy_size() const noexcept { return copy_size_; }

 private:
  UnitPlace& open_unit(int unit);

  std::vector<TensorPlace> tensors_;
  std::vector<UnitPlace> units_;
  std::map<std::string, TensorId, std::less<>> names_;
  std::int64_t copy_size_ = 0;
  int dp_ = 0;
  int tp_rank_ = 0;
};

}  // namespace troupe::train

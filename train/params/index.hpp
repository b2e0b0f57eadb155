/// Index: where each tensor of a model lies, in which unit and shard, and which rank owns it. It
/// holds names and places, but no values.
///
///     Index index;
///     const int unit = index.begin_unit("h.0");
///     TensorId w = index.add(unit, "h.0.mlp.c_fc.weight", {4 * c, c}, Group::decay);
///     index.seal({.dp = 4});
///     index.owned(unit, /*dp_rank=*/1);       // the elements of the unit that rank 1 updates
///
/// A unit (a block, the embedding, the head) is gathered, reduced, released and offloaded as a
/// whole. Its slab holds its tensors side by side, each aligned to 64 elements, and is padded
/// with zeros to a multiple of dp * 1,024 elements. The slab is cut into equal parts for the dp
/// owners (ZeRO, Rajbhandari et al. 2020), so no chunk of the global norm has two owners.
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

/// Elements in a chunk of the global norm; the smallest part that an owner can have.
inline constexpr std::int64_t kChunk = 1024;
/// Alignment in elements of a tensor in its unit.
inline constexpr std::int64_t kAlign = 64;

/// How the optimizer treats a tensor.
enum class Group : std::uint8_t {
  decay,     ///< weight decay applies: matrices
  no_decay,  ///< biases, norms
};

/// The part of a tensor that this rank has when tensor parallelism divides it.
struct TensorShard {
  int axis = -1;  ///< the divided axis; -1: every rank has the whole tensor
  int parts = 1;
  int index = 0;
  int groups = 1;        ///< equal parts of the axis, each of which is divided: 3 for a fused qkv
  bool partial = false;  ///< replicated, but the gradient must be summed over the parts
  /// The axis is rounded up to a multiple of the parts. Elements beyond its end are zero, lie in
  /// the last shards and do not belong to the tensor. Only with one group.
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
  Shape global;  ///< of the whole tensor
  Shape local;   ///< of this rank's shard, with padding
  Group group = Group::decay;
  TensorShard shard;
  int unit = 0;
  std::int64_t offset = 0;  ///< of its first element in the unit's slab
  TensorId tied_to = -1;    ///< the tensor whose weights it shares; a tied use has no weights of
                            ///< its own
  /// Whether it is a tied use on another rank of the pipeline, which sends the gradient.
  bool remote = false;

  /// Returns whether it is a copy of a tensor that another rank of the pipeline owns.
  bool is_copy() const noexcept { return unit < 0; }

  /// Returns the size of this rank's shard along an axis, without padding.
  std::int64_t size(int axis) const noexcept;
  /// Returns the elements of this rank's shard, without padding.
  std::int64_t count() const noexcept;
};

struct UnitPlace {
  std::string name;
  std::vector<TensorId> tensors;  ///< without tied uses
  std::vector<TensorId> tied;     ///< tied uses, whose weights lie in other units
  std::int64_t used = 0;          ///< elements of tensors, without any padding
  std::int64_t size = 0;          ///< of the slab, with padding
};

struct SealOptions {
  int dp = 1;  ///< ranks that share the optimizer's work
};

class TROUPE_API Index {
 public:
  /// `tp_rank` is this rank's index in its tensor-parallel group; layers read it in declare().
  explicit Index(int tp_rank = 0) noexcept : tp_rank_(tp_rank) {}
  int tp_rank() const noexcept { return tp_rank_; }

  int begin_unit(std::string name);
  /// Adds a tensor. Throws InvalidArgument, naming the tensor, for a second tensor of the name, a
  /// dimension below 1, or more than 2^48 elements. Throws it also for a shard that does not
  /// divide its axis (unless it is padded) or is padded with groups, and after seal().
  TensorId add(int unit, std::string name, const Shape& global, Group group,
               const TensorShard& shard = {});
  /// Adds a use of another unit's tensor to this unit. The use has the weights of `tensor`. Its
  /// gradient lies in memory of its own (tied_size()) and is added to the tensor's once a step.
  /// Throws InvalidArgument for a tensor that is tied itself, and after seal().
  TensorId tie(int unit, TensorId tensor);
  /// Adds a copy of a tensor that the first rank of a pipeline owns. This rank reads its weights,
  /// but does not update them. A copy lies in no unit, and has no gradient and no moments. The
  /// norm, reductions and snapshots leave it out. Uses on this rank are tied to it. Throws
  /// InvalidArgument for a second tensor of the name, and after seal().
  TensorId add_copy(const TensorPlace& of);
  /// Adds a use of this tensor by another rank of the pipeline, which sends the gradient here.
  /// Throws as tie().
  TensorId tie_remote(TensorId tensor);
  /// Fixes all places; call it once. Throws InvalidArgument for dp < 1, and when all tensors
  /// together, with padding or with tied uses, have more than 2^52 elements.
  void seal(const SealOptions& options = {});
  bool is_sealed() const noexcept { return dp_ > 0; }
  int dp() const noexcept { return dp_; }

  const std::vector<TensorPlace>& tensors() const noexcept { return tensors_; }
  const std::vector<UnitPlace>& units() const noexcept { return units_; }
  const TensorPlace& operator[](TensorId id) const {
    return tensors_.at(static_cast<std::size_t>(id));
  }
  /// Returns the tensor of that name. Tied uses have no names of their own.
  std::optional<TensorId> find(std::string_view name) const;

  /// Returns the part of the unit's slab that rank dp_rank owns: size / dp elements.
  Range owned(int unit, int dp_rank) const;
  /// Returns the boxes of the whole tensor that this rank's shard consists of, in their order
  /// along the shard's axis: one, or `groups` of them; none for a shard that is all padding.
  std::vector<Box> global(TensorId id) const;

  /// Returns the number of this rank's parameters. Tied ones count once; copies and padding do
  /// not count.
  std::int64_t parameter_count() const noexcept;
  /// Returns the elements of all slabs, with padding.
  std::int64_t slab_size() const noexcept;
  /// Returns the elements of the gradients of tied uses.
  std::int64_t tied_size() const noexcept;
  /// Returns the elements of copies, each aligned to kAlign. Valid after seal().
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

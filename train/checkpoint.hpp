/// SavedModel: a checkpoint as a training loop saves it. Its bytes are an object in the object
/// store; beside them are its step and its hash.
///
///     SavedModel saved = save_model(ctx, step, model, optimizer);
///     std::uint64_t hash = load_model(ctx, saved, 30s, model, optimizer); // equal to saved.hash
///
/// save_model() writes the parts one after the other with the codec (runtime/codec.hpp), so a
/// class needs only fields(). Load parts in the order in which they were saved. The object lives
/// as long as any copy of the SavedModel does, in any process.
///
/// An Engine among the parts is saved as its Snapshot: whole tensors by name. A Snapshot loads
/// into an engine of any layout, or into a Snapshot. All ranks of the engine make the call, and
/// rank 0's
/// result counts. Loading reads the tensors in place, so each rank copies only its own part of
/// them.
///
/// A run with a folder saves there instead (FitOptions::run). SavedModel::folder then names the
/// checkpoint, and load_model() maps its files.
#pragma once

#include "troupe/runtime/codec.hpp"
#include "troupe/runtime/runtime.hpp"
#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/hash.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::train {

struct SavedModel {
  Ref<Array<std::uint8_t>> model;
  long step = 0;
  std::uint64_t hash = 0;  ///< hash_bytes() of the model's bytes
  std::uint64_t bytes = 0;
  std::uint64_t types = 0;  ///< fingerprint of the parts' types; 0: unknown
  /// Position of the loop in its data: passes that have ended, and batches of the pass after
  /// them.
  std::uint64_t passes = 0, batches = 0;
  /// Path of a checkpoint in a folder. There is no object then, and only the step is filled in.
  std::string folder = {};
  explicit operator bool() const noexcept { return static_cast<bool>(model) || !folder.empty(); }
  friend auto fields(SavedModel& s) {
    return std::tie(s.model, s.step, s.hash, s.bytes, s.types, s.passes, s.batches, s.folder);
  }
  friend auto fields(const SavedModel& s) {
    return std::tie(s.model, s.step, s.hash, s.bytes, s.types, s.passes, s.batches, s.folder);
  }
};

namespace internal {
/// Returns what is written for a part: the part itself, or for an engine its snapshot, which only
/// rank 0 has.
template <class M>
M& stored(M& part) noexcept {
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): a temporary does not bind to M&
  return part;
}
inline Snapshot stored(Engine& engine) {
  return engine.snapshot(/*root=*/0);
}
template <class M>
using StoredOf = std::remove_cvref_t<decltype(stored(std::declval<M&>()))>;

/// Returns a hash of the stored parts' types in their order; never 0, because 0 stands for
/// unknown.
template <class... M>
constexpr std::uint64_t types_of() {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a (Fowler, Noll, Vo)
  ((hash = (hash ^ fingerprint<StoredOf<M>>)*1099511628211u), ...);
  return hash == 0 ? 1 : hash;
}

/// A part while it is read. Most parts are read into directly. An engine is read into a snapshot
/// first and changes only once all parts are read.
template <class M>
struct Reading {
  explicit Reading(M& part) noexcept : to(part) {}
  void read(PartReader& reader) { reader.read(to); }
  void finish() noexcept {}
  M& to;
};
template <>
struct Reading<Engine> {
  explicit Reading(Engine& engine) noexcept : to(engine) {}
  void read(PartReader& reader) { reader.read(snapshot); }
  void finish() { to.restore(view_of(snapshot)); }
  Engine& to;
  SnapshotOf<Array<std::byte>> snapshot;  // borrows from the object
};
static_assert(fingerprint<Snapshot> == fingerprint<SnapshotOf<Array<std::byte>>>);

[[noreturn]] TROUPE_API void refuse_types();

/// Returns which of the parts is the engine; -1: none. Throws InvalidArgument for two engines.
TROUPE_API int engine_among(std::initializer_list<bool> engines);
template <class... M>
int engine_part() {
  return engine_among({std::is_same_v<M, Engine>...});
}

/// Returns the encoding of the parts that are no engine; nothing when there are none.
template <class... M>
std::optional<Blob> encode_others(M&... parts) {
  const auto other = []<class P>(P& part) {
    if constexpr (std::is_same_v<std::remove_cv_t<P>, Engine>)
      return std::tuple<>();
    else
      return std::tuple<P&>(part);
  };
  auto others = std::tuple_cat(other(parts)...);
  if constexpr (std::tuple_size_v<decltype(others)> == 0) {
    return std::nullopt;
  } else {
    std::optional<Blob> bytes(std::in_place);
    std::apply(
        [&](auto&... each) {
          encode_parts(
              [&](std::size_t size) {
                bytes->resize(size);
                return std::span(*bytes);
              },
              each...);
        },
        others);
    return bytes;
  }
}

/// Sets the part to the engine's state in the checkpoint.
template <class M>
void load_engine(const FolderCheckpoint& from, M& part) {
  if constexpr (std::is_same_v<M, Engine>)
    part.restore(from.view(), from.identity());
  else if constexpr (std::is_same_v<M, Snapshot>)
    part = copy_of(from.view());
  else
    refuse_types();
}

/// Reads the checkpoint into the parts. An engine changes only once the other parts are read.
/// Throws as load_model().
template <class... M>
void load_folder(const std::shared_ptr<const FolderCheckpoint>& from, M&... parts) {
  const CheckpointDocument& document = from->document();
  if (document.types != 0 && document.types != types_of<M...>()) refuse_types();
  PartReader reader(from->parts(), from);
  int number = 0;
  const auto read_other = [&](auto& part) {
    if (number++ == document.engine) return;
    Reading reading(part);
    reading.read(reader);
    reading.finish();
  };
  (read_other(parts), ...);
  reader.finish();
  number = 0;
  const auto read_engine = [&](auto& part) {
    if (number++ == document.engine) load_engine(*from, part);
  };
  (read_engine(parts), ...);
}

/// Opens a checkpoint and compares the hashes of all its files.
TROUPE_API std::shared_ptr<const FolderCheckpoint> open_checked(const std::string& path);
}  // namespace internal

/// Returns XXH64 of the parts' bytes. Costs a copy of them.
template <class... M>
std::uint64_t hash_model(M&&... parts) {
  std::vector<std::byte> bytes;
  encode_parts(
      [&](std::size_t size) {
        bytes.resize(size);
        return std::span(bytes);
      },
      internal::stored(parts)...);
  return hash_bytes(bytes.data(), bytes.size());
}

/// Writes the parts into a new object, in place. Throws OutOfMemory. A training loop that
/// restores the result continues after the first `step` batches of its first pass.
template <class... M>
SavedModel save_model(const Context& ctx, long step, M&&... parts) {
  std::optional<Builder<std::uint8_t>> builder;
  SavedModel saved;
  encode_parts(
      [&](std::size_t size) {
        builder.emplace(ctx.create<std::uint8_t>(size));
        return std::as_writable_bytes(std::span(builder->data(), size));
      },
      internal::stored(parts)...);
  saved.types = internal::types_of<std::remove_cvref_t<M>...>();
  saved.step = step;
  saved.batches = step > 0 ? static_cast<std::uint64_t>(step) : 0;
  saved.bytes = builder->size();
  saved.hash = hash_bytes(builder->data(), builder->size());
  saved.model = builder->seal();
  return saved;
}

/// Reads the object into the parts. Returns the hash of the parts, computed from their new values
/// and not from the object. From a folder it returns FolderCheckpoint::identity() instead. Blocks for the object at most `timeout`. Throws TimedOut or
/// ObjectLost, and InvalidArgument when the types of the parts differ from the saved ones or an
/// engine has another model.
template <class... M>
std::uint64_t load_model(const Context& ctx, const SavedModel& saved, Duration timeout,
                         M&... parts) {
  if (!saved.folder.empty()) {
    const auto from = internal::open_checked(saved.folder);
    internal::load_folder(from, parts...);
    return from->identity();
  }
  if (saved.types != 0 && saved.types != internal::types_of<M...>()) internal::refuse_types();
  const auto array = std::make_shared<const Array<std::uint8_t>>(ctx.get(saved.model, timeout));
  PartReader reader(std::as_bytes(std::span(array->data(), array->size())), array);
  std::tuple<internal::Reading<M>...> readings(parts...);
  std::apply(
      [&](auto&... each) {
        (each.read(reader), ...);
        reader.finish();
        (each.finish(), ...);
      },
      readings);
  return hash_model(parts...);
}

}  // namespace troupe::train

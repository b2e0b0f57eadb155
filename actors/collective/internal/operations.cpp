// The operations as sequences of phases.
#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/kernels/denormals/denormals.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::internal {
namespace {

/// From this many ranks on, an allreduce is a reduce-scatter and an all-gather: two meetings, but
/// each rank reads 2 slots' worth instead of `size`.
constexpr int kSlicedFrom = 4;

void copy_bytes(void* to, const void* from, std::uint64_t bytes) {
  if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// out[i] = factor * (parts[0][i] + parts[1][i] + ...), ascending.
template <class T>
void sum(T* out, const std::vector<const T*>& parts, std::uint64_t count, T factor) {
  constexpr std::uint64_t width = 16;  // a constant trip count is vectorised at -O2
  std::uint64_t i = 0;
  for (; i + width <= count; i += width) {
    T total[width];
    for (std::uint64_t j = 0; j < width; ++j) total[j] = parts[0][i + j];
    for (std::size_t p = 1; p < parts.size(); ++p)
      for (std::uint64_t j = 0; j < width; ++j) total[j] += parts[p][i + j];
    for (std::uint64_t j = 0; j < width; ++j) out[i + j] = total[j] * factor;
  }
  for (; i < count; ++i) {
    T total = parts[0][i];
    for (std::size_t p = 1; p < parts.size(); ++p) total += parts[p][i];
    out[i] = total * factor;
  }
}

template <class T>
T factor_of(const Operation& operation, int size) {
  return operation.reduce == Reduce::mean ? T{1} / static_cast<T>(size) : T{1};
}

}  // namespace

template <class T>
std::vector<const T*> ArenaCommunicator::slots_at(std::uint64_t first) {
  std::vector<const T*> parts;
  for (int other = 0; other < size(); ++other)
    parts.push_back(reinterpret_cast<const T*>(slot_of(other)) + first);
  return parts;
}

template <class T>
void ArenaCommunicator::allreduce_direct(T* data, std::uint64_t count, T factor) {
  const std::uint64_t piece = arena_->slot_bytes() / sizeof(T);
  for (std::uint64_t first = 0; first < count; first += piece) {
    const std::uint64_t n = std::min(piece, count - first);
    copy_bytes(my_slot(), data + first, n * sizeof(T));
    meet(first);
    sum(data + first, slots_at<T>(0), n, factor);
  }
}

template <class T>
void ArenaCommunicator::allreduce_sliced(T* data, std::uint64_t count, T factor) {
  const std::uint64_t piece = arena_->slot_bytes() / sizeof(T);
  const auto ranks = static_cast<std::uint64_t>(size());
  for (std::uint64_t first = 0; first < count; first += piece) {
    const std::uint64_t n = std::min(piece, count - first);
    auto begin = [&](std::uint64_t r) { return n * r / ranks; };
    const std::uint64_t mine = begin(static_cast<std::uint64_t>(rank()));
    const std::uint64_t end = begin(static_cast<std::uint64_t>(rank()) + 1);
    copy_bytes(my_slot(), data + first, n * sizeof(T));
    meet(first, 0);
    sum(reinterpret_cast<T*>(my_slot()) + mine, slots_at<T>(mine), end - mine, factor);
    meet(first, 1);
    for (std::uint64_t r = 0; r < ranks; ++r)
      copy_bytes(data + first + begin(r),
                 reinterpret_cast<const T*>(slot_of(static_cast<int>(r))) + begin(r),
                 (begin(r + 1) - begin(r)) * sizeof(T));
  }
}

template <class T>
void ArenaCommunicator::allreduce(const Operation& o) {
  T* data = static_cast<T*>(o.out);
  const T factor = factor_of<T>(o, size());
  if (o.count == 0) return meet(0);
  if (size() < kSlicedFrom)
    allreduce_direct(data, o.count, factor);
  else
    allreduce_sliced(data, o.count, factor);
}

void ArenaCommunicator::reduce_scatter(const Operation& o) {
  const auto* in = static_cast<const float*>(o.in);
  auto* out = static_cast<float*>(o.out);
  const auto ranks = static_cast<std::uint64_t>(size());
  const std::uint64_t piece = std::max<std::uint64_t>(arena_->slot_bytes() / 4 / ranks, 1);
  if (o.count == 0) return meet(0);
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first);
    for (std::uint64_t r = 0; r < ranks; ++r)
      copy_bytes(my_slot() + r * n * 4, in + r * o.count + first, n * 4);
    meet(first);
    sum(out + first, slots_at<float>(static_cast<std::uint64_t>(rank()) * n), n,
        factor_of<float>(o, size()));
  }
}

void ArenaCommunicator::all_gather(const Operation& o) {
  const std::uint64_t bytes = o.count * (o.type == Operation::Type::f32 ? 4 : 1);
  const auto* in = static_cast<const std::byte*>(o.in);
  auto* out = static_cast<std::byte*>(o.out);
  if (bytes == 0) return meet(0);
  for (std::uint64_t first = 0; first < bytes; first += arena_->slot_bytes()) {
    const std::uint64_t n = std::min(arena_->slot_bytes(), bytes - first);
    copy_bytes(my_slot(), in + first, n);
    meet(first);
    for (int r = 0; r < size(); ++r)
      copy_bytes(out + static_cast<std::uint64_t>(r) * bytes + first, slot_of(r), n);
  }
}

void ArenaCommunicator::broadcast(const Operation& o) {
  auto* data = static_cast<std::byte*>(o.out);
  if (o.count == 0) return meet(0);
  for (std::uint64_t first = 0; first < o.count; first += arena_->slot_bytes()) {
    const std::uint64_t n = std::min(arena_->slot_bytes(), o.count - first);
    if (rank() == o.root) copy_bytes(my_slot(), data + first, n);
    meet(first);
    if (rank() != o.root) copy_bytes(data + first, slot_of(o.root), n);
  }
}

void ArenaCommunicator::run(const Operation& operation) {
  const kernels::FlushDenormals flush;  // whatever the caller's mode, all ranks add alike
  current_ = operation;
  ++operations_;
  note_progress(true);
  switch (operation.kind) {
    case Operation::Kind::barrier: meet(0); break;
    case Operation::Kind::broadcast: broadcast(operation); break;
    case Operation::Kind::reduce_scatter: reduce_scatter(operation); break;
    case Operation::Kind::all_gather: all_gather(operation); break;
    case Operation::Kind::allreduce:
      switch (operation.type) {
        case Operation::Type::f64: allreduce<double>(operation); break;
        case Operation::Type::i64: allreduce<std::int64_t>(operation); break;
        case Operation::Type::f32:
        case Operation::Type::bytes: allreduce<float>(operation); break;
      }
      break;
  }
  note_progress(false);
}

}  // namespace troupe::collective::internal

#include "troupe/train/layers/layer.hpp"

#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/sizes.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

constexpr std::int64_t kPartAlign = 256;

/// A run of consecutive elements: its first element in the whole tensor and in this rank's shard.
struct Piece {
  std::int64_t global = 0, local = 0, count = 0;
};

/// Returns the row-major number of an element.
std::int64_t element_of(const Shape& at, const Shape& shape) {
  std::int64_t element = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) element = element * shape[axis] + at[axis];
  return element;
}

/// Returns the axis from which on a box is contiguous in both tensors, because all later axes are
/// whole.
int run_axis(const Box& box, const Shape& global, const Shape& local) {
  int axis = box.size.rank() - 1;
  while (axis > 0 && box.size[axis] == global[axis] && box.size[axis] == local[axis]) --axis;
  return axis;
}

/// Steps `at` to the next place of the box in the axes below `end`. Returns false after the last.
bool advance(Shape& at, const Shape& size, int end) {
  for (int axis = end; axis-- > 0;) {
    if (at[axis] + 1 < size[axis]) {
      at.set(axis, at[axis] + 1);
      return true;
    }
    at.set(axis, 0);
  }
  return false;
}

Shape sum(const Shape& a, const Shape& b) {
  Shape out = a;
  for (int axis = 0; axis < a.rank(); ++axis) out.set(axis, a[axis] + b[axis]);
  return out;
}

template <class F>
void for_each_piece(const Box& box, const TensorPlace& place, const Shape& local_first, F&& f) {
  const int axis = run_axis(box, place.global, place.local);
  std::int64_t count = 1;
  for (int i = axis; i < box.size.rank(); ++i) count *= box.size[i];
  Shape at = box.size;
  for (int i = 0; i < at.rank(); ++i) at.set(i, 0);
  do {
    f(Piece{element_of(sum(box.first, at), place.global),
            element_of(sum(local_first, at), place.local), count});
  } while (advance(at, box.size, axis));
}

/// Calls f(Piece) for all elements of a tensor that this rank has.
template <class F>
void for_each_piece(const Index& index, TensorId id, F&& f) {
  const TensorPlace& place = index[id];
  if (place.global.rank() == 0) return f(Piece{0, 0, 1});
  Shape local_first = place.local;
  for (int i = 0; i < local_first.rank(); ++i) local_first.set(i, 0);
  for (const Box& box : index.global(id)) {
    for_each_piece(box, place, local_first, f);
    const int axis = place.shard.axis;
    if (axis >= 0) local_first.set(axis, local_first[axis] + box.size[axis]);
  }
}

void convert(const std::vector<float>& from, DType type, void* to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    switch (type) {
      case DType::f64: static_cast<double*>(to)[i] = static_cast<double>(from[i]); break;
      case DType::bf16: static_cast<std::uint16_t*>(to)[i] = kernels::to_bf16(from[i]); break;
      case DType::f16: static_cast<std::uint16_t*>(to)[i] = kernels::to_f16(from[i]); break;
      case DType::f32: static_cast<float*>(to)[i] = from[i]; break;
      default: internal::reject("weights are f32, f64, bf16 or f16");
    }
  }
}

/// Elements that are generated at a time on the way to a device or to another type.
constexpr std::int64_t kStaged = 1 << 16;

/// Writes a run of normal numbers through host memory.
void stage_normal(const Run& run, const TensorView& to, const Piece& piece, std::uint64_t stream,
                  float deviation) {
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (std::int64_t done = 0; done < piece.count; done += kStaged) {
    const std::int64_t n = std::min(kStaged, piece.count - done), size = kernels::size_of(to.type);
    values.resize(static_cast<std::size_t>(n));
    bytes.resize(static_cast<std::size_t>(n * size));
    kernels::philox_normal(values.data(), n, run.seed, stream,
                           static_cast<std::uint64_t>(piece.global + done), 0.0f, deviation);
    convert(values, to.type, bytes.data());
    run.device.copy(run.queue(), to.as<std::byte>() + (piece.local + done) * size, bytes.data(),
                    bytes.size());
    run.queue().synchronize();  // the next round overwrites the bytes
  }
}

}  // namespace

Layer::~Layer() = default;

void Layer::check_input(const TensorView&) const {}

void Layer::check_targets(const Spec&, const TensorView&) const {}

Need Layer::prediction_need(const Spec& in, const Layout&) const {
  return {.out = in};
}

PassExchanges Layer::exchanges(const Spec&, const Layout&) const {
  return {};
}

void Layer::predict(const Run& run, const Tensors&, TensorView x, TensorView y, TensorView) const {
  run.device.copy(run.queue(), y.data, x.data, static_cast<std::size_t>(x.bytes()));
}

Index declare(const Model& model, const Layout& layout, int tp_rank) {
  Index index(tp_rank);
  for (const std::unique_ptr<Layer>& layer : model)
    layer->declare(index, index.begin_unit(layer->name()), layout);
  return index;
}

void fill_normal(const Run& run, const Tensors& w, TensorId id, float deviation) {
  const std::string& name = w.place(id).name;
  const std::uint64_t stream = hash_bytes(name.data(), name.size());
  const TensorView to = w[id];
  const bool directly = run.device.is_cpu() && to.type == DType::f32;
  for_each_piece(w.index(), id, [&](const Piece& piece) {
    if (!directly) return stage_normal(run, to, piece, stream, deviation);
    kernels::philox_normal(to.as<float>() + piece.local, piece.count, run.seed, stream,
                           static_cast<std::uint64_t>(piece.global), 0.0f, deviation);
  });
}

void fill_value(const Run& run, const Tensors& w, TensorId id, float value) {
  const TensorView to = w[id];
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    run.k().fill(run.queue(), {.type = to.type,
                               .n = count,
                               .out = to.as<std::byte>() + first * kernels::size_of(to.type),
                               .factor = value});
  };
  if (!w.place(id).shard.padded) return fill(0, to.count());
  for_each_piece(w.index(), id, [&](const Piece& piece) { fill(piece.local, piece.count); });
}

TensorView Carve::take(const Spec& spec) {
  TensorView part(next_, spec);
  const std::int64_t end =
      internal::add_rounded(bytes_, part.bytes(), kPartAlign, "the memory of a layer for one pass");
  if (next_ != nullptr) next_ += end - bytes_;
  bytes_ = end;
  return part;
}

}  // namespace troupe::train

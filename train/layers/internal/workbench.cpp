#include "troupe/train/layers/internal/workbench.hpp"

#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::train::internal {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kPoison{0xff};  // NaN in f64; -1 in i32

Spec bytes_of(std::int64_t bytes) {
  return {DType::u8, {bytes}};
}

bool all_are(const std::byte* first, std::size_t count, std::byte value) {
  return std::all_of(first, first + count, [=](std::byte b) { return b == value; });
}

std::size_t size(const TensorView& view) {
  return static_cast<std::size_t>(view.bytes());
}

}  // namespace

double number(const TensorView& view, std::int64_t element) {
  if (view.type == DType::f64) return view.as<double>()[element];
  return static_cast<double>(view.as<float>()[element]);
}

void set_number(const TensorView& view, std::int64_t element, double value) {
  if (view.type == DType::f64)
    view.as<double>()[element] = value;
  else
    view.as<float>()[element] = static_cast<float>(value);
}

Guarded::Guarded(const Spec& spec)
    : memory_(static_cast<std::size_t>(spec.bytes()) + 3 * kGuard, kGuardByte) {
  void* first = memory_.data() + kGuard;
  std::size_t room = memory_.size() - kGuard;
  view_ = TensorView(std::align(kGuard, 1, first, room), spec);
  std::fill_n(view_.as<std::byte>(), size(view_), std::byte{0});
}

void Guarded::poison() noexcept {
  std::fill_n(view_.as<std::byte>(), size(view_), kPoison);
}

bool Guarded::is_intact() const noexcept {
  if (memory_.empty()) return true;
  const std::byte *begin = memory_.data(), *first = view_.as<std::byte>();
  const std::byte* end = first + size(view_);
  const auto before = static_cast<std::size_t>(first - begin);
  return all_are(begin, before, kGuardByte) &&
         all_are(end, static_cast<std::size_t>(begin + memory_.size() - end), kGuardByte);
}

std::uint64_t Guarded::hash() const noexcept {
  return view_.data == nullptr ? 0 : hash_bytes(view_.data, size(view_));
}

Workbench::Workbench(std::vector<Layer*> layers, const WorkbenchOptions& options)
    : layers_(std::move(layers)),
      options_(options),
      device_(kernels::cpu_device()),
      index_(options.tp == nullptr ? 0 : options.tp->rank()) {
  require(!layers_.empty(), "a model needs at least one layer");
  require(options_.input.shape.rank() > 0, "an input needs at least one dimension: its batch");
  declare();
  for (std::int64_t i = 0; i < options_.input.shape[0]; ++i) samples_.push_back(7 * i + 2);
  make_memory();
}

/// Declares twice, first in an index with other tensors in front, to catch layers that keep its
/// ids.
void Workbench::declare() {
  constexpr int kOthers = 1000;
  Index earlier(index_.tp_rank());
  const int unit = earlier.begin_unit("others");
  for (int i = 0; i < kOthers; ++i) earlier.add(unit, std::to_string(i), {1}, Group::decay);
  for (Index* index : {&earlier, &index_})
    for (Layer* layer : layers_)
      layer->declare(*index, index->begin_unit(layer->name()), options_.layout);
  index_.seal();
}

void Workbench::require_known(TensorId id) const {
  if (id < 0 || id >= static_cast<TensorId>(index_.tensors().size()))
    reject(layers_.front()->name() + (layers_.size() > 1 ? " or a layer behind it" : "") +
           " uses a tensor that its index does not have: a second declare() must forget the ids "
           "of the first");
}

void Workbench::make_memory() {
  for (const TensorPlace& place : index_.tensors()) {
    weights_.emplace_back(Spec{options_.layout.compute, place.local});
    gradients_.emplace_back(Spec{options_.layout.compute, place.local});
  }
  Spec spec = options_.input;
  streams_.emplace_back(spec);
  dstreams_.emplace_back(spec);
  for (const Layer* layer : layers_) {
    const Need need = layer->need(spec, options_.layout);
    passes_.push_back({need, Guarded(bytes_of(need.saved)), Guarded(bytes_of(need.carry)),
                       Guarded(bytes_of(need.temporary))});
    spec = need.out;
    streams_.emplace_back(spec);
    dstreams_.emplace_back(spec);
  }
  if (!ends_in_loss()) return;
  Spec targets = options_.targets;
  if (targets.shape.rank() == 0) targets.shape = spec.shape;
  target_memory_ = Guarded(targets);
  targets_ = {target_memory_.view(), spec.count() + 3,  // not the number of rows
              options_.loss_scale};
}

Run Workbench::run(bool training) {
  return {.device = device_,
          .layout = options_.layout,
          .tp = options_.tp,
          .type = options_.layout.compute,
          .seed = options_.seed,
          .step = options_.step,
          .samples = samples_,
          .targets = ends_in_loss() ? &targets_ : nullptr,
          .training = training};
}

TensorView Workbench::weights(TensorId id) const {
  const TensorId tied = index_[id].tied_to;
  return at(weights_, tied < 0 ? id : tied).view();
}

Tensors Workbench::find_weights() const {
  return {index_, [this](TensorId id) {
            require_known(id);
            return weights(id);
          }};
}

Tensors Workbench::find_gradients() const {
  return {index_, [this](TensorId id) {
            require_known(id);
            return gradients(id);
          }};
}

std::vector<TensorId> Workbench::tensors() const {
  std::vector<TensorId> all;
  for (std::size_t id = 0; id < index_.tensors().size(); ++id)
    if (index_.tensors()[id].tied_to < 0) all.push_back(static_cast<TensorId>(id));
  return all;
}

std::vector<double> Workbench::whole_gradient(TensorId id) const {
  std::vector<double> sum(static_cast<std::size_t>(gradients(id).count()));
  for (std::size_t use = 0; use < index_.tensors().size(); ++use) {
    if (static_cast<TensorId>(use) != id && index_.tensors()[use].tied_to != id) continue;
    const TensorView g = gradients(static_cast<TensorId>(use));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += number(g, static_cast<std::int64_t>(i));
  }
  return sum;
}

void Workbench::initialize() {
  const Run setting = run(true);
  for (const Layer* layer : layers_) layer->initialize(setting, find_weights());
}

void Workbench::fill_gradients(double value) {
  for (const Guarded& gradient : gradients_) {
    const TensorView view = gradient.view();
    for (std::int64_t i = 0; i < view.count(); ++i) set_number(view, i, value);
  }
}

void Workbench::check(std::size_t i, const char* call) const {
  const Pass& pass = passes_[i];
  const auto intact = [&](const Guarded& memory, const std::string& what) {
    if (!memory.is_intact()) reject(layers_[i]->name() + ": " + call + "() writes outside " + what);
  };
  intact(streams_[i], "x");
  intact(streams_[i + 1], "y");
  intact(dstreams_[i], "dx");
  intact(dstreams_[i + 1], "dy");
  intact(pass.saved, "its saved bytes");
  intact(pass.carry, "its carry bytes");
  intact(pass.temporary, "its temporary bytes");
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    intact(weights_[id], "the weights of " + index_.tensors()[id].name);
    intact(gradients_[id], "the gradient of " + index_.tensors()[id].name);
  }
}

double Workbench::forward(bool training) {
  const Run setting = run(training);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Pass& pass = passes_[i];
    streams_[i + 1].poison();
    pass.saved.poison();
    pass.temporary.poison();
    layers_[i]->forward(setting, find_weights(), streams_[i].view(), streams_[i + 1].view(),
                        pass.saved.view(), pass.temporary.view());
    check(i, "forward");
  }
  const TensorView y = output();
  double sum = 0;
  for (std::int64_t k = 0; k < y.count(); ++k)
    sum += number(y, k) * (ends_in_loss() ? 1.0 : number(direction(), k));
  return ends_in_loss() ? sum * targets_.scale / static_cast<double>(targets_.total) : sum;
}

void Workbench::backward(bool with_input) {
  const Run setting = run(true);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    Pass& pass = passes_[i];
    const bool loss = layers_[i]->is_loss();
    const TensorView x = streams_[i].view(), dy = loss ? TensorView() : dstreams_[i + 1].view();
    TensorView dx = dstreams_[i].view();
    if (i == 0 && (!with_input || x.type != options_.layout.compute)) dx.data = nullptr;
    dstreams_[i].poison();
    pass.carry.poison();
    pass.temporary.poison();
    layers_[i]->backward_input(setting, find_weights(), dy, x, pass.saved.view(), pass.carry.view(),
                               pass.temporary.view(), dx);
    check(i, "backward_input");
    pass.temporary.poison();
    layers_[i]->backward_weight(setting, find_gradients(), dy, x, pass.saved.view(),
                                pass.carry.view(), pass.temporary.view());
    check(i, "backward_weight");
  }
}

std::vector<double> Workbench::predict() {
  const TensorView x = streams_[layers_.size() - 1].view();
  const Need need = layers_.back()->prediction_need(x.spec(), options_.layout);
  Guarded out(need.out), temporary(bytes_of(need.temporary));
  out.poison();
  temporary.poison();
  layers_.back()->predict(run(false), find_weights(), x, out.view(), temporary.view());
  if (!out.is_intact() || !temporary.is_intact())
    reject(layers_.back()->name() + ": predict() writes outside y or its temporary bytes");
  std::vector<double> values;
  for (std::int64_t i = 0; i < out.view().count(); ++i) values.push_back(number(out.view(), i));
  return values;
}

std::int64_t Workbench::saved_bytes() const {
  std::int64_t sum = 0;
  for (const Pass& pass : passes_) sum += pass.need.saved;
  return sum;
}

std::uint64_t Workbench::forward_hash() const {
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    hashes.push_back(streams_[i + 1].hash());
    hashes.push_back(passes_[i].saved.hash());
  }
  return hash_bytes(hashes.data(), hashes.size() * sizeof(std::uint64_t));
}

std::uint64_t Workbench::read_only_hash() const {
  std::vector<std::uint64_t> hashes{dstreams_.back().hash(), target_memory_.hash()};
  for (const Guarded& stream : streams_) hashes.push_back(stream.hash());
  for (const Guarded& tensor : weights_) hashes.push_back(tensor.hash());
  return hash_bytes(hashes.data(), hashes.size() * sizeof(std::uint64_t));
}

}  // namespace troupe::train::internal

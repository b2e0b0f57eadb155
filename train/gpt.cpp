#include "troupe/train/gpt.hpp"

#include "troupe/kernels/kernels.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace troupe::train {
namespace {

using kernels::Op;

float residual_deviation(const GptConfig& c) {
  return 0.02f / std::sqrt(2.0f * static_cast<float>(c.layers));
}

void check_config(const GptConfig& c) {
  constexpr std::int64_t limit = 1 << 20;
  for (const std::int64_t size : {c.vocabulary, c.context, c.layers, c.heads, c.channels})
    internal::require(size > 0 && size <= limit, "a size of GptConfig is not in [1, 2^20]");
  internal::require(c.channels % c.heads == 0, "GptConfig.heads must divide channels");
}

/// Name and shape of each tensor.
std::vector<std::string> tensors_of(const ParameterMap& map) {
  std::vector<std::string> lines;
  for (const Parameter& tensor : map.tensors()) {
    std::string sizes;
    for (const std::int64_t size : tensor.shape)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    lines.push_back(tensor.name + " [" + sizes + "]");
  }
  return lines;
}

/// Throws InvalidArgument, naming the first difference, unless both are the same.
void require_same(const std::vector<std::string>& restored, const std::vector<std::string>& mine) {
  const auto [theirs, ours] =
      std::mismatch(restored.begin(), restored.end(), mine.begin(), mine.end());
  if (theirs == restored.end() && ours == mine.end()) return;
  internal::reject("the restored weights belong to another model: they have " +
                   (theirs == restored.end() ? "nothing" : *theirs) + " where this one has " +
                   (ours == mine.end() ? "nothing" : *ours));
}

}  // namespace

/// Counts the tensors of each bucket that are still open and reports a bucket when none is.
class Gpt::BucketCounter {
 public:
  BucketCounter(const ParameterMap& map, const BucketReady& on_ready)
      : map_(map), on_ready_(on_ready) {
    for (const Bucket& bucket : map.buckets()) open_.push_back(bucket.tensors);
  }
  void finished(int first, int end) {
    for (int i = first; i < end; ++i) --open_[static_cast<std::size_t>(map_[i].bucket)];
    for (; next_ < open_.size() && open_[next_] == 0; ++next_)
      if (on_ready_) on_ready_(static_cast<int>(next_));
  }

 private:
  const ParameterMap& map_;
  const BucketReady& on_ready_;
  std::vector<int> open_;
  std::size_t next_ = 0;
};

/// The map and the layers that point into it: made once, never moved.
struct Gpt::Layers {
  ParameterMap map;
  std::vector<std::string> described;  // tensors_of(map)
  int tokens = -1, positions = -1;
  std::vector<Block> blocks;
  std::unique_ptr<LayerNorm> norm;

  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
  Layers(const GptConfig& c, const BucketOptions& buckets) {
    check_config(c);
    map.begin_unit();
    tokens = map.add("transformer.wte.weight", {c.vocabulary, c.channels}, true);
    positions = map.add("transformer.wpe.weight", {c.context, c.channels}, true);
    const BlockConfig block{.channels = c.channels,
                            .heads = c.heads,
                            .bias = c.bias,
                            .residual_deviation = residual_deviation(c)};
    for (std::int64_t i = 0; i < c.layers; ++i) {
      map.begin_unit();
      blocks.emplace_back(map, "transformer.h." + std::to_string(i), block);
    }
    map.begin_unit();
    norm = std::make_unique<LayerNorm>(map, "transformer.ln_f", c.channels, c.bias);
    map.seal(buckets);
    described = tensors_of(map);
  }
};

/// Buffers of one pass, kept while the shape stays.
struct Gpt::Activations {
  Extent extent;
  std::vector<float> stream;   // layers + 1 planes: the input of each block, then of the last norm
  std::vector<float> saved;    // per block, or one block's when recomputing
  std::vector<float> scratch;  // inner gradients of one block
  std::vector<float> norm_saved, norm_out, logits, losses;
  std::vector<float> dnorm, dx, dy;

  void fit(const Gpt& model, Extent e) {
    if (e.batch == extent.batch && e.time == extent.time) return;
    const GptConfig& c = model.config();
    const auto rows = static_cast<std::size_t>(e.rows());
    const auto layers = static_cast<std::size_t>(c.layers);
    const std::size_t plane = rows * static_cast<std::size_t>(c.channels);
    const Block& block = model.layers_->blocks.front();
    stream.resize(plane * (layers + 1));
    saved.resize(static_cast<std::size_t>(block.saved_bytes(e)) / 4 * (c.recompute ? 1 : layers));
    scratch.resize(static_cast<std::size_t>(block.scratch_bytes(e)) / 4);
    norm_saved.resize(2 * rows);
    norm_out.resize(plane);
    logits.resize(rows * static_cast<std::size_t>(c.vocabulary));
    losses.resize(rows);
    dnorm.resize(plane);
    dx.resize(plane);
    dy.resize(plane);
    extent = e;
  }
  float* input(std::int64_t layer, std::int64_t channels) {
    return stream.data() + layer * extent.rows() * channels;
  }
  float* block_saved(const Gpt& model, std::int64_t layer) {
    if (model.config().recompute) return saved.data();
    return saved.data() + layer * (model.layers_->blocks.front().saved_bytes(extent) / 4);
  }
};

Gpt::Gpt(const GptConfig& config, std::uint64_t seed, const BucketOptions& buckets)
    : config_(config) {
  layers_ = std::make_unique<Layers>(config, buckets);
  activations_ = std::make_unique<Activations>();
  tensors_ = layers_->described;
  parameters_.resize(static_cast<std::size_t>(map().size()));
  gradients_.resize(parameters_.size());
  for (const int table : {layers_->tokens, layers_->positions}) {
    const Parameter& tensor = map()[table];
    kernels::philox_normal(parameters_.data() + tensor.offset, tensor.size, seed,
                           hash_bytes(tensor.name.data(), tensor.name.size()), 0, 0.0f, 0.02f);
  }
  for (const Block& block : layers_->blocks) block.initialize(parameters_.data(), seed);
  layers_->norm->initialize(parameters_.data());
}

ParameterMap parameters_of(const GptConfig& config, const BucketOptions& buckets) {
  return Gpt::Layers(config, buckets).map;
}

Gpt::Gpt(Gpt&&) noexcept = default;
Gpt& Gpt::operator=(Gpt&&) noexcept = default;
Gpt::~Gpt() = default;

const ParameterMap& Gpt::map() const noexcept {
  return layers_->map;
}

void Gpt::zero_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  head_waits_ = false;
}

std::span<float> Gpt::gradients(int bucket) {
  const Bucket& range = map().buckets().at(static_cast<std::size_t>(bucket));
  return gradients().subspan(static_cast<std::size_t>(range.offset),
                             static_cast<std::size_t>(range.size));
}

void Gpt::check(const Batch& batch) const {
  if (tensors_ != layers_->described) require_same(tensors_, layers_->described);
  internal::require(parameters_.size() == static_cast<std::size_t>(map().size()),
                    "the restored weights belong to a model of another shape");
  internal::require(batch.rows >= 0 && batch.time > 0 && batch.time <= config_.context,
                    "a batch's rows are longer than the model's context, or empty");
  internal::require(batch.rows <= (std::int64_t{1} << 40) / batch.time, "a batch is too large");
  const auto tokens = static_cast<std::size_t>(batch.rows * batch.time);
  internal::require(batch.inputs.size() == tokens && batch.targets.size() == tokens,
                    "a batch's tokens do not fill its rows");
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::int32_t in = batch.inputs[i], out = batch.targets[i];
    if (in < 0 || in >= config_.vocabulary || out < kernels::kIgnore || out >= config_.vocabulary)
      internal::reject("token " + std::to_string(i) + " is outside the vocabulary");
  }
}

void Gpt::forward(const std::int32_t* tokens, Extent e) {
  Activations& a = *activations_;
  a.fit(*this, e);
  const std::int64_t c = config_.channels, layers = config_.layers;
  const float* p = parameters_.data();
  const float* wte = p + map()[layers_->tokens].offset;
  kernels::embedding_forward(a.input(0, c), tokens, wte, p + map()[layers_->positions].offset,
                             e.batch, e.time, c);
  for (std::int64_t i = 0; i < layers; ++i)
    layers_->blocks[static_cast<std::size_t>(i)].forward(p, a.input(i, c), a.input(i + 1, c),
                                                         a.block_saved(*this, i), e);
  layers_->norm->forward(p, a.input(layers, c), a.norm_out.data(), a.norm_saved.data(), e.rows());
  kernels::gemm(Op::none, Op::transpose, e.rows(), config_.vocabulary, c, a.norm_out.data(), c, wte,
                c, 0.0f, a.logits.data(), config_.vocabulary);
}

namespace {

LossSum sum_of(const std::vector<float>& losses, std::int64_t count) {
  LossSum sum{0, count};
  for (const float loss : losses) sum.sum += loss;
  return sum;
}

}  // namespace

LossSum Gpt::loss_sum(const Batch& batch) {
  const kernels::FlushDenormals flush;
  check(batch);
  if (batch.rows == 0) return {};
  Activations& a = *activations_;
  const Extent extent{batch.rows, batch.time};
  forward(batch.inputs.data(), extent);
  kernels::cross_entropy_forward(a.losses.data(), a.logits.data(), batch.targets.data(),
                                 extent.rows(), config_.vocabulary);
  return sum_of(a.losses, counted_targets(batch));
}

double Gpt::forward_backward(const Batch& batch, float weight, const BucketReady& on_ready) {
  const std::int64_t counted = counted_targets(batch);
  const auto count = static_cast<float>(std::max<std::int64_t>(counted, 1));
  return run_backward(batch, counted, weight / count, true, on_ready).mean();
}

LossSum Gpt::accumulate(const Batch& batch, const StepPart& part) {
  internal::require(part.targets >= 0, "StepPart.targets must not be negative");
  const std::int64_t counted = counted_targets(batch);
  const std::int64_t all = part.targets > 0 ? part.targets : std::max<std::int64_t>(counted, 1);
  return run_backward(batch, counted, 1.0f / static_cast<float>(all), part.last, part.on_ready);
}

LossSum Gpt::run_backward(const Batch& batch, std::int64_t counted, float scale, bool last,
                          const BucketReady& on_ready) {
  const kernels::FlushDenormals flush;
  check(batch);
  BucketCounter counter(map(), on_ready);
  BucketCounter* ready = last ? &counter : nullptr;
  if (counted == 0) {
    if (!last) return {};
    if (head_waits_) add_head_gradient();
    counter.finished(0, static_cast<int>(map().tensors().size()));
    return {};
  }
  Activations& a = *activations_;
  const Extent extent{batch.rows, batch.time};
  forward(batch.inputs.data(), extent);
  kernels::cross_entropy_fused(a.losses.data(), a.logits.data(), batch.targets.data(),
                               extent.rows(), config_.vocabulary, scale);
  backward(batch.inputs.data(), extent, ready);
  return sum_of(a.losses, counted);
}

void Gpt::add_head_gradient() {
  float* wte = gradients_.data() + map()[layers_->tokens].offset;
  kernels::add(wte, wte, head_gradient_.data(), static_cast<std::int64_t>(head_gradient_.size()));
  head_waits_ = false;
}

void Gpt::backward(const std::int32_t* tokens, Extent e, BucketCounter* ready) {
  Activations& a = *activations_;
  const std::int64_t c = config_.channels, layers = config_.layers, rows = e.rows(),
                     vocabulary = config_.vocabulary;
  const float* p = parameters_.data();
  float* g = gradients_.data();
  const std::int64_t wte = map()[layers_->tokens].offset;
  const auto finished = [ready](int first, int end) {
    if (ready != nullptr) ready->finished(first, end);
  };
  kernels::gemm(Op::none, Op::none, rows, c, vocabulary, a.logits.data(), vocabulary, p + wte, c,
                0.0f, a.dnorm.data(), c);
  head_gradient_.resize(static_cast<std::size_t>(vocabulary * c));
  kernels::gemm(Op::transpose, Op::none, vocabulary, c, rows, a.logits.data(), vocabulary,
                a.norm_out.data(), c, head_waits_ ? 1.0f : 0.0f, head_gradient_.data(), c);
  head_waits_ = true;
  float *dy = a.dy.data(), *dx = a.dx.data();
  kernels::fill(dy, 0.0f, rows * c);
  const LayerNorm& norm = *layers_->norm;
  norm.backward_input(p, a.dnorm.data(), a.input(layers, c), a.norm_saved.data(), dy, rows);
  norm.backward_weight(g, a.dnorm.data(), a.input(layers, c), a.norm_saved.data(), rows);
  finished(norm.first_tensor(), norm.end_tensor());
  for (std::int64_t i = layers; i-- > 0;) {
    const Block& block = layers_->blocks[static_cast<std::size_t>(i)];
    float* saved = a.block_saved(*this, i);
    const float* x = a.input(i, c);
    // dx is free until backward_input writes it: the repeated forward's output may land there
    if (config_.recompute) block.forward(p, x, dx, saved, e);
    block.backward_input(p, dy, x, saved, a.scratch.data(), dx, e);
    block.backward_weight(g, dy, x, saved, a.scratch.data(), e);
    finished(block.first_tensor(), block.end_tensor());
    std::swap(dx, dy);
  }
  kernels::embedding_backward(g + wte, g + map()[layers_->positions].offset, dy, tokens, e.batch,
                              e.time, c);
  if (ready == nullptr) return;
  add_head_gradient();
  finished(layers_->tokens, layers_->positions + 1);
}

std::span<const float> Gpt::next_logits(std::span<const std::int32_t> tokens) {
  const kernels::FlushDenormals flush;
  const auto context = static_cast<std::size_t>(config_.context);
  if (tokens.size() > context) tokens = tokens.last(context);
  Batch batch;
  batch.rows = 1;
  batch.time = static_cast<std::int64_t>(tokens.size());
  batch.inputs.assign(tokens.begin(), tokens.end());
  batch.targets.assign(tokens.size(), kernels::kIgnore);
  check(batch);
  forward(batch.inputs.data(), {1, batch.time});
  const auto vocabulary = static_cast<std::size_t>(config_.vocabulary);
  return std::span<const float>(activations_->logits).last(vocabulary);
}

std::int64_t Gpt::saved_bytes(Extent e) const noexcept {
  const std::int64_t plane = 4 * e.rows() * config_.channels;
  const std::int64_t block = layers_->blocks.front().saved_bytes(e);
  return plane * (config_.layers + 2) + 8 * e.rows() +
         block * (config_.recompute ? 1 : config_.layers);
}

double Gpt::training_flops(double tokens) const noexcept {
  const double weights =
      static_cast<double>(parameter_count() - config_.context * config_.channels);
  const double attention = 12.0 * static_cast<double>(config_.layers * config_.channels) *
                           static_cast<double>(config_.context);
  return tokens * (6.0 * weights + attention);
}

}  // namespace troupe::train

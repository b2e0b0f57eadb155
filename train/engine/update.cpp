#include "troupe/train/engine/internal/update.hpp"

namespace troupe::train::internal {

/// Copies of weights and gradients lie in pinned memory; the CPU device runs the update.
class Update::OnHost {
 public:
  explicit OnHost(Parts& parts) : parts_(&parts), cpu_(kernels::cpu_device()) {}

  void run(int unit, const Store::Owned& owned, float rate, std::int64_t step, float scale) {
    const auto bytes = static_cast<std::size_t>(owned.range.count) * sizeof(float);
    if (weights_.bytes() < bytes) {
      weights_ = parts_->device.allocate(bytes, kernels::Where::pinned);
      gradients_ = parts_->device.allocate(bytes, kernels::Where::pinned);
    }
    kernels::Queue& queue = parts_->device.copies();
    parts_->device.wait(queue, parts_->device.record(parts_->device.compute()));
    parts_->device.copy(queue, weights_.data(), owned.weights, bytes);
    parts_->device.copy(queue, gradients_.data(), owned.gradients, bytes);
    queue.synchronize();
    Store::Owned host = owned;
    host.weights = static_cast<float*>(weights_.data());
    host.gradients = static_cast<float*>(gradients_.data());
    update_owned(cpu_, parts_->index, unit, host, parts_->optimizer, rate, step, scale);
    parts_->device.copy(queue, owned.weights, weights_.data(), bytes);
    queue.synchronize();
  }

 private:
  Parts* parts_;
  kernels::Device cpu_;
  kernels::Memory weights_, gradients_;
};

Update::Update(Parts& parts) : parts_(&parts) {
  if (parts.layout.offload == Offload::optimizer) on_host_ = std::make_unique<OnHost>(parts);
}

Update::~Update() = default;

void Update::apply(float rate, std::int64_t step, float gradient_scale) {
  step -= moments_since_;
  for (int unit = 0; unit < parts_->unit_count(); ++unit) {
    if (!parts_->has(unit)) continue;
    const Store::Owned owned = parts_->store.owned(unit);
    if (on_host_ != nullptr)
      on_host_->run(unit, owned, rate, step, gradient_scale);
    else
      update_owned(parts_->device, parts_->index, unit, owned, parts_->optimizer, rate, step,
                   gradient_scale);
    parts_->store.publish(unit);
  }
}

}  // namespace troupe::train::internal

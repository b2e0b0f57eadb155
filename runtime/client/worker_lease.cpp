#include "troupe/runtime/client/worker_lease.hpp"

#include "troupe/runtime/client/visible_devices.hpp"
#include "troupe/runtime/scheduling/resources.hpp"

#include <cstdlib>

namespace troupe::client {

void WorkerLease::granted(const wire::LeaseGranted& message) {
  if (message.demand) {
    demand_ = *message.demand;
    library_threads_.want(static_cast<double>(message.demand->cpus) / scheduling::kUnit);
    if (!message.has_devices) return;
  }
  gpus_.assign(message.gpus.begin(), message.gpus.end());
  is_news_ = true;
}

void WorkerLease::set_variable() {
  static const char* const kVariable = "CUDA_VISIBLE_DEVICES";
  if (!inherited_) {
    const char* inherited = std::getenv(kVariable);
    inherited_.emplace(inherited != nullptr ? inherited : "");
  }
  ::setenv(kVariable, visible_devices(gpus_, inherited_->c_str()).c_str(), 1);
  is_news_ = false;
}

}  // namespace troupe::client

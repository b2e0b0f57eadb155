#include "troupe/kernels/device/device.hpp"

namespace troupe::kernels {

Queue::~Queue() = default;

}  // namespace troupe::kernels

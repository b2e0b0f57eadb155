#include "troupe/kernels/device.hpp"

namespace troupe::kernels {

EventState::~EventState() = default;

std::string_view name_of(DType type) noexcept {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

}  // namespace troupe::kernels

/// 16-bit numbers for the operations of cases.hpp, and the list of operations that have 16-bit
/// types.
#pragma once

#include "cases.hpp"
#include "troupe/kernels/half/half.hpp"

namespace troupe::kernels {

/// A 16-bit number with conversions from and to float, for tests.
template <DType type>
struct Narrow {
  std::uint16_t bits = 0;
  Narrow() = default;
  explicit Narrow(double value)
      : bits(type == DType::bf16 ? to_bf16(static_cast<float>(value))
                                 : to_f16(static_cast<float>(value))) {}
  float wide() const { return type == DType::bf16 ? from_bf16(bits) : from_f16(bits); }
  friend bool operator==(const Narrow&, const Narrow&) = default;
};
template <>
inline constexpr DType type_of<Narrow<DType::bf16>> = DType::bf16;
template <>
inline constexpr DType type_of<Narrow<DType::f16>> = DType::f16;

using Bf16 = Narrow<DType::bf16>;
using F16 = Narrow<DType::f16>;

/// An operation of cases.hpp that has 16-bit types.
struct NarrowOperation {
  const char* name;
  void (*wide)(Bench<float>&);
  void (*bf16)(Bench<Bf16>&);
  void (*f16)(Bench<F16>&);
};
inline void PrintTo(const NarrowOperation& operation, std::ostream* out) {
  *out << operation.name;
}
#define OPERATION(name, call) \
  {name, [](Bench<float>& b) { call; }, [](Bench<Bf16>& b) { call; }, [](Bench<F16>& b) { call; }}
inline const NarrowOperation kNarrowOperations[] = {
    OPERATION("relu", run_activation(b, Activation::relu)),
    OPERATION("gelu", run_activation(b, Activation::gelu)),
    OPERATION("silu", run_activation(b, Activation::silu)),
    OPERATION("gated_silu", run_gated(b)),
    OPERATION("layer_norm", run_norm(b, false)),
    OPERATION("rms_norm", run_norm(b, true)),
    OPERATION("layer_norm_beyond_f16", run_norm(b, false, 1e6)),
    OPERATION("cross_entropy_beyond_f16", run_loss(b, 1e6)),
    OPERATION("gelu_beyond_f16", run_activation(b, Activation::gelu, 1e6)),
    OPERATION("rope", run_rope(b)),
    OPERATION("cross_entropy", run_loss(b)),
    OPERATION("dropout", run_dropout(b)),
    OPERATION("images", run_images(b)),
    OPERATION("max_pool", run_pool(b)),
    OPERATION("transpose", run_transpose(b)),
    OPERATION("gemm", run_gemm(b, Op::none, Op::transpose)),
    OPERATION("gemm_first_flipped", run_gemm(b, Op::transpose, Op::none)),
    OPERATION("attention", run_attention(b, false)),
    OPERATION("attention_kept", run_attention(b, true)),
    OPERATION("embedding", run_embedding(b)),
    OPERATION("elementwise", run_elementwise(b)),
};
#undef OPERATION

}  // namespace troupe::kernels

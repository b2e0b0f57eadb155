#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/internal/half_widened.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/runtime/base/error.hpp"

#include <new>

namespace troupe::kernels::half {
namespace {

using internal::grain;
using internal::kCheap;

/// Calls row(first element, columns) for all rows; a single row is divided into parts.
template <class Row>
void for_each_row(Queue& queue, const Area& area, const Row& row) {
  if (area.lines() == 1)
    return internal::parallel(
        queue, area.columns, kCheap,
        [&](std::int64_t first, std::int64_t end) { row(first, end - first); });
  internal::parallel(queue, area.lines(), grain(area.columns, kCheap),
                     [&](std::int64_t first, std::int64_t end) {
                       for (std::int64_t line = first; line < end; ++line)
                         row(area.first_of(line), area.columns);
                     });
}

/// Calls f(widen, narrow) with the type's two conversions.
template <class F>
void with_conversions(DType type, const F& f) {
  if (type == DType::bf16)
    f([](std::uint16_t bits) { return from_bf16(bits); }, [](float x) { return to_bf16(x); });
  else
    f([](std::uint16_t bits) { return from_f16(bits); }, [](float x) { return to_f16(x); });
}

}  // namespace

float* Widened::take(const Area& area) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(area.span(), 1));
  try {
    return memory_.emplace_back(count).data();
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(Code::out_of_memory, "no room for " + std::to_string(count * sizeof(float)) +
                                               " bytes of a 16-bit operand as f32");
  }
}

void Widened::widen(const void* from, float* to, const Area& area) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  with_conversions(type_, [&](auto wide, auto) {
    for_each_row(queue_, area, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) to[i] = wide(bits[i]);
    });
  });
}

void Widened::in(const void*& operand, const Area& area) {
  if (operand == nullptr) return;
  float* copy = take(area);
  widen(operand, copy, area);
  operand = copy;
}

void Widened::in(void*& operand, const Area& area) {
  const void* read = operand;
  in(read, area);
  operand = const_cast<void*>(read);  // memory of take(), which is writable
}

void Widened::out(void*& operand, const Area& area, bool read) {
  if (operand == nullptr) return;
  float* values = take(area);
  if (read) widen(operand, values, area);
  results_.push_back({values, static_cast<std::uint16_t*>(operand), area});
  operand = values;
}

void Widened::round() {
  for (const Result& result : results_)
    with_conversions(type_, [&](auto, auto narrow) {
      for_each_row(queue_, result.area, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) result.to[i] = narrow(result.from[i]);
      });
    });
}

}  // namespace troupe::kernels::half

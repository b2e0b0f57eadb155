#include "troupe/train/params/view.hpp"

#include "troupe/train/internal/reject.hpp"

#include <limits>

namespace troupe::train {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) push_back(size);
}

void Shape::push_back(std::int64_t size) {
  if (rank_ == kMost)
    internal::reject("a shape has at most " + std::to_string(kMost) + " dimensions");
  set(rank_++, size);
}

std::int64_t Shape::count() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : *this)
    if (__builtin_mul_overflow(count, size, &count))
      count = std::numeric_limits<std::int64_t>::max();
  return count;
}

std::string Shape::text() const {
  std::string text = "[";
  for (const std::int64_t size : *this)
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

}  // namespace troupe::train

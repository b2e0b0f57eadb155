#include "troupe/train/parameters.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

std::int64_t product(const std::vector<std::int64_t>& shape, const std::string& name) {
  std::int64_t size = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) internal::reject("parameter " + name + " has a negative dimension");
    if (dimension > 0 && size > kMaxElements / dimension)
      internal::reject("parameter " + name + " is larger than 2^48 elements");
    size *= dimension;
  }
  return size;
}

}  // namespace

void ParameterMap::begin_unit() {
  unit_is_open_ = has_units_ = true;
}

int ParameterMap::add(std::string name, std::vector<std::int64_t> shape, bool decay) {
  internal::require(buckets_.empty(), "a parameter was added after the map was sealed");
  if (find(name)) internal::reject("two parameters are named " + name);
  Parameter tensor;
  tensor.size = product(shape, name);
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.decay = decay;
  const int index = static_cast<int>(tensors_.size());
  if (unit_is_open_ || !has_units_) units_.push_back({.first_tensor = index});
  unit_is_open_ = false;
  units_.back().end_tensor = index + 1;
  tensor.unit = static_cast<int>(units_.size()) - 1;
  tensors_.push_back(std::move(tensor));
  return index;
}

void ParameterMap::seal(const BucketOptions& options) {
  internal::require(buckets_.empty(), "a parameter map is sealed once");
  internal::require(options.pad > 0, "BucketOptions.pad must be positive");
  Bucket open;
  auto close = [&] {
    buckets_.push_back(open);
    open = {open.offset + open.size, 0, 0};
  };
  for (std::size_t u = units_.size(); u-- > 0;) {
    Unit& unit = units_[u];
    unit.offset = open.offset + open.size;
    for (int i = unit.end_tensor; i-- > unit.first_tensor;) {
      Parameter& tensor = tensors_[static_cast<std::size_t>(i)];
      tensor.offset = unit.offset + unit.size;
      tensor.bucket = static_cast<int>(buckets_.size());
      unit.size += tensor.size;
    }
    unit.size = (unit.size + options.pad - 1) / options.pad * options.pad;
    open.size += unit.size;
    open.tensors += unit.end_tensor - unit.first_tensor;
    if (open.size >= (buckets_.empty() ? options.first_elements : options.elements)) close();
  }
  if (open.tensors > 0 || buckets_.empty()) close();
  size_ = open.offset;
}

std::int64_t ParameterMap::parameter_count() const noexcept {
  std::int64_t count = 0;
  for (const Parameter& tensor : tensors_) count += tensor.size;
  return count;
}

std::optional<int> ParameterMap::find(std::string_view name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].name == name) return static_cast<int>(i);
  return std::nullopt;
}

}  // namespace troupe::train

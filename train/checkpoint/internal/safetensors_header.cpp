#include "troupe/train/checkpoint/internal/safetensors_header.hpp"

#include "troupe/train/internal/reject.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace troupe::train::internal {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";

/// Checks the grammar event by event, which bounds the depth and detects duplicate keys.
class Reader : public nlohmann::json_sax<json> {
 public:
  Header header;
  std::string problem;

  bool null() override { return fail("null is not expected"); }
  bool boolean(bool) override { return fail("a boolean is not expected"); }
  bool number_float(number_float_t, const string_t&) override {
    return fail("a number is not an integer of 64 bits");
  }
  bool binary(binary_t&) override { return fail("binary is not expected"); }
  bool number_integer(number_integer_t) override { return fail("a number is negative"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& text) override;
  bool start_object(std::size_t) override;
  bool key(string_t& text) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("its header is not JSON at byte " + std::to_string(position));
  }

 private:
  enum class At { outside, top, metadata, tensor, shape, offsets };
  enum Field : unsigned { none = 0, dtype = 1, shape = 2, offsets = 4, all = 7 };

  bool fail(std::string why) {
    problem = std::move(why);
    return false;
  }

  At at_ = At::outside;
  std::string key_;
  std::set<std::string> names_;
  unsigned seen_ = none;  // fields of the tensor that is being read
  Field field_ = none;    // the field whose value comes next
  int offsets_read_ = 0;
};

bool Reader::start_object(std::size_t) {
  if (at_ == At::outside) {
    at_ = At::top;
    return true;
  }
  if (at_ != At::top) return fail("an object is nested too deep");
  at_ = key_ == kMetadata ? At::metadata : At::tensor;
  if (at_ == At::tensor) {
    header.entries.emplace_back().name = key_;
    seen_ = field_ = none;
    offsets_read_ = 0;
  }
  return true;
}

bool Reader::key(string_t& text) {
  key_ = text;
  if (at_ == At::top) return names_.insert(text).second || fail("two entries have the same name");
  if (at_ == At::metadata)
    return header.metadata.count(text) == 0 || fail("two metadata entries have the same name");
  field_ = text == "dtype"          ? dtype
           : text == "shape"        ? shape
           : text == "data_offsets" ? offsets
                                    : none;
  if (field_ == none) return fail("a tensor has an unknown field");
  if (seen_ & field_) return fail("a tensor has a field twice");
  seen_ |= field_;
  return true;
}

bool Reader::string(string_t& text) {
  if (at_ == At::metadata) {
    header.metadata[key_] = text;
    return true;
  }
  if (at_ != At::tensor || field_ != dtype) return fail("a string is not expected there");
  header.entries.back().type = text;
  return true;
}

bool Reader::start_array(std::size_t) {
  if (at_ != At::tensor || (field_ != shape && field_ != offsets))
    return fail("an array is not expected there");
  at_ = field_ == shape ? At::shape : At::offsets;
  return true;
}

bool Reader::number_unsigned(number_unsigned_t value) {
  HeaderEntry* entry = header.entries.empty() ? nullptr : &header.entries.back();
  if (at_ == At::shape) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("a dimension is too large");
    entry->shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (at_ != At::offsets) return fail("a number is not expected there");
  if (offsets_read_ == 2) return fail("data_offsets has more than two numbers");
  (offsets_read_++ == 0 ? entry->begin : entry->end) = value;
  return true;
}

bool Reader::end_array() {
  if (at_ == At::offsets && offsets_read_ != 2)
    return fail("data_offsets has fewer than two numbers");
  at_ = At::tensor;
  return true;
}

bool Reader::end_object() {
  if (at_ == At::tensor && seen_ != all) return fail("a tensor lacks a field");
  at_ = at_ == At::top ? At::outside : At::top;
  return true;
}

}  // namespace

std::string write_header(std::span<const HeaderEntry> entries,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::set<std::string> names;
  for (const HeaderEntry& entry : entries) {
    if (entry.name == kMetadata) reject("a tensor may not be named __metadata__");
    if (!names.insert(entry.name).second) reject("two tensors are named " + entry.name);
    nlohmann::ordered_json value;
    value["dtype"] = entry.type;
    value["shape"] = entry.shape;
    value["data_offsets"] = {entry.begin, entry.end};
    header.push_back({entry.name, std::move(value)});
  }
  try {
    return header.dump();
  } catch (const nlohmann::json::type_error&) {
    reject("a tensor's name or the metadata is not UTF-8");
  }
}

Result<Header> parse_header(std::string_view text) {
  if (text.empty() || text.front() != '{')
    return Error(Code::invalid_argument, "its header does not begin with {");
  while (text.back() == ' ') text.remove_suffix(1);
  Reader reader;
  if (!json::sax_parse(text.begin(), text.end(), &reader))
    return Error(Code::invalid_argument, reader.problem);
  return std::move(reader.header);
}

}  // namespace troupe::train::internal

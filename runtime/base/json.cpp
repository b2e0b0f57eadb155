#include "troupe/runtime/base/json.hpp"

#include "troupe/runtime/base/json_writer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace troupe {
namespace {

using Library = nlohmann::json;

/// Builds a Json from the parser's events.
class Builder : public nlohmann::json_sax<Library> {
 public:
  Json document;
  std::string problem;

  bool null() override { return place(Json()); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(number_integer_t value) override { return place(value); }
  bool number_unsigned(number_unsigned_t value) override { return place(value); }
  bool number_float(number_float_t value, const string_t&) override { return place(value); }
  bool string(string_t& text) override { return place(std::move(text)); }
  bool binary(binary_t&) override { return false; }  // only binary formats have it
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    key_ = std::move(text);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = "it is not JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  bool place(Json value) {
    last_ = open_.empty()               ? &(document = std::move(value))
            : open_.back()->is_object() ? &((*open_.back())[key_] = std::move(value))
                                        : &open_.back()->push_back(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == std::size_t{Json::kMaxDepth}) {
      problem = "it nests deeper than " + std::to_string(Json::kMaxDepth);
      return false;
    }
    place(std::move(value));
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  /// The arrays and objects that have not ended. Only the last one grows, so the pointers to the
  /// others' elements stay valid.
  std::vector<Json*> open_;
  Json* last_ = nullptr;  // the value that was placed last
  std::string key_;
};

/// Returns whether a text stands in JSON as it is.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

/// The library itself writes texts that need escapes.
void append_text(std::string& out, std::string_view value) {
  if (is_plain(value))
    out.append(1, '"').append(value).append(1, '"');
  else
    out += Library(value).dump(-1, ' ', false, Library::error_handler_t::replace);
}

/// The library itself writes numbers with a fraction.
void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 64> digits{};
  out.append(digits.data(), nlohmann::detail::to_chars(digits.data(), digits.data() + 64, value));
}

/// Writes a document as the library does.
class Writer {
 public:
  Writer(int indent, Json::Order order) : indent_(indent), order_(order) {}

  std::string text;

  void write(const Json& json) {
    if (const auto* array = json.as_array()) {
      write_list(*array, '[', ']', [&](const Json& element) { write(element); });
    } else if (const auto* object = json.as_object()) {
      std::vector<const Json::Field*> fields;
      for (const Json::Field& field : *object) fields.push_back(&field);
      if (order_ == Json::Order::by_name)
        std::sort(fields.begin(), fields.end(),
                  [](const auto* a, const auto* b) { return a->name < b->name; });
      write_list(fields, '{', '}', [&](const Json::Field* field) {
        append_text(text, field->name);
        text += indent_ < 0 ? ":" : ": ";
        write(field->value);
      });
    } else if (const auto* value = json.as_text()) {
      append_text(text, *value);
    } else if (const auto* flag = json.as_bool()) {
      text += *flag ? "true" : "false";
    } else if (json.is_null()) {
      text += "null";
    } else if (const auto natural = json.as_whole<std::uint64_t>()) {
      text += std::to_string(*natural);
    } else if (const auto whole = json.as_whole<std::int64_t>()) {
      text += std::to_string(*whole);
    } else {
      append_number(text, json.as_number().value());
    }
  }

 private:
  template <class Elements, class Write>
  void write_list(const Elements& elements, char first, char last, Write write_one) {
    text += first;
    ++depth_;
    bool any = false;
    for (const auto& element : elements) {
      if (std::exchange(any, true)) text += ',';
      new_line();
      write_one(element);
    }
    --depth_;
    if (any) new_line();
    text += last;
  }
  void new_line() {
    if (indent_ < 0) return;
    text += '\n';
    text.append(static_cast<std::size_t>(indent_) * depth_, ' ');
  }

  const int indent_;
  const Json::Order order_;
  std::size_t depth_ = 0;
};

}  // namespace

void JsonWriter::text(std::string_view value) {
  comma();
  append_text(out_, value);
}

void JsonWriter::number(double value) {
  comma();
  append_number(out_, value);
}

Json::Json() noexcept = default;
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::initializer_list<Field> fields) : value_(Object()) {
  for (const Field& field : fields)
    if (find(field.name) == nullptr) std::get<Object>(value_).push_back(field);
}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::array() {
  Json json;
  json.value_ = Array();
  return json;
}

Json Json::object() {
  Json json;
  json.value_ = Object();
  return json;
}

Result<Json> Json::parse(std::string_view text) {
  Builder builder;
  if (!Library::sax_parse(text.begin(), text.end(), &builder))
    return Error(Code::invalid_argument, builder.problem);
  return std::move(builder.document);
}

std::string Json::dump(int indent, Order order) const {
  Writer writer(indent, order);
  writer.write(*this);
  return std::move(writer.text);
}

bool Json::is_null() const noexcept {
  return std::holds_alternative<std::monostate>(value_);
}
const bool* Json::as_bool() const noexcept {
  return std::get_if<bool>(&value_);
}
const std::string* Json::as_text() const noexcept {
  return std::get_if<std::string>(&value_);
}
const Json::Array* Json::as_array() const noexcept {
  return std::get_if<Array>(&value_);
}
const Json::Object* Json::as_object() const noexcept {
  return std::get_if<Object>(&value_);
}

std::optional<double> Json::as_number() const noexcept {
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  if (const auto* i = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*u);
  return std::nullopt;
}

const Json* Json::find(std::string_view name) const noexcept {
  if (const auto* fields = as_object())
    for (const Field& field : *fields)
      if (field.name == name) return &field.value;
  return nullptr;
}

Json& Json::operator[](std::string_view name) {
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  if (is_null()) value_ = Object();
  TROUPE_ASSERT(is_object(), "only an object has fields");
  return std::get<Object>(value_).emplace_back(Field{std::string(name), Json()}).value;
}

Json& Json::push_back(Json element) {
  if (is_null()) value_ = Array();
  TROUPE_ASSERT(as_array() != nullptr, "only an array has elements");
  return std::get<Array>(value_).emplace_back(std::move(element));
}

}  // namespace troupe

#include "troupe/train/checkpoint/folder/document.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/hash.hpp"

#include <array>
#include <charconv>
#include <set>

namespace troupe::train {
namespace {

constexpr const char* kHashKey = "xxh64";
constexpr const char* kFormatKey = "troupe.checkpoint";

std::string hex(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4)
    text[i] = "0123456789abcdef"[number & 15];
  return text;
}

std::optional<std::uint64_t> unhex(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (problem != std::errc{} || end != text.data() + text.size() || hex(number) != text)
    return std::nullopt;
  return number;
}

std::uint64_t hash_of(const std::string& text) {
  return hash_bytes(text.data(), text.size());
}

Json layout_json(const Layout& layout) {
  return {{"dp", layout.dp},       {"tp", layout.tp},
          {"pp", layout.pp},       {"zero", layout.zero},
          {"micro", layout.micro}, {"compute", std::string(kernels::name_of(layout.compute))}};
}

Json json_of(const CheckpointDocument& document) {
  Json files = Json::array();
  for (const SavedFile& file : document.files)
    files.push_back({{"name", file.name}, {"size", file.size}, {"xxh64", hex(file.hash)}});
  Json json{{kFormatKey, CheckpointDocument::kVersion},
            {"step", document.step},
            {"steps", document.steps},
            {"seed", document.seed},
            {"passes", document.passes},
            {"batches", document.batches},
            {"data", Json{{"pass", document.data.pass},
                          {"samples", document.data.samples},
                          {"batch", document.data.batch},
                          {"seed", document.data.seed}}},
            {"moments_since", document.moments_since},
            {"layout", layout_json(document.layout)},
            {"engine", document.engine},
            {"types", hex(document.types)},
            {"files", files}};
  if (document.loss_scale)
    json["loss_scale"] = Json{{"scale", static_cast<double>(document.loss_scale->scale)},
                              {"good_steps", document.loss_scale->good_steps}};
  return json;
}

/// Reads the fields of an object and keeps the first problem.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(&json) {}

  template <class T>
  void whole(const char* name, T& into, T least = 0) {
    const Json* field = json_->find(name);
    const std::optional<T> value = field == nullptr ? std::nullopt : field->as_whole<T>();
    if (!value || *value < least) return wrong(name);
    into = *value;
  }
  void hexadecimal(const char* name, std::uint64_t& into) {
    const std::string* text = text_in(name);
    const std::optional<std::uint64_t> value = text == nullptr ? std::nullopt : unhex(*text);
    if (!value) return wrong(name);
    into = *value;
  }
  const std::string* text_in(const char* name) const {
    const Json* field = json_->find(name);
    return field == nullptr ? nullptr : field->as_text();
  }
  /// Returns an object to read from also when there is none.
  const Json& object(const char* name) {
    static const Json none = Json::object();
    const Json* field = json_->find(name);
    if (field != nullptr && field->is_object()) return *field;
    wrong(name);
    return none;
  }
  void wrong(const std::string& name) {
    if (problem_.empty()) problem_ = name;
  }
  void adopt(const Fields& other) {
    if (!other.problem_.empty()) wrong(other.problem_);
  }
  const std::string& problem() const noexcept { return problem_; }

 private:
  const Json* json_;
  std::string problem_;
};

void read_layout(Fields& all, Layout& layout) {
  Fields fields(all.object("layout"));
  fields.whole("dp", layout.dp, 1);
  fields.whole("tp", layout.tp, 1);
  fields.whole("pp", layout.pp, 1);
  fields.whole("zero", layout.zero);
  fields.whole("micro", layout.micro, 1);
  const std::string* compute = fields.text_in("compute");
  bool known = false;
  for (const kernels::DType type :
       {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16}) {
    if (compute == nullptr || *compute != kernels::name_of(type)) continue;
    layout.compute = type;
    known = true;
  }
  if (!known) fields.wrong("compute");
  all.adopt(fields);
}

void read_files(Fields& all, const Json& json, std::vector<SavedFile>& files) {
  const Json* list = json.find("files");
  if (list == nullptr || list->as_array() == nullptr) return all.wrong("files");
  std::set<std::string> names;
  for (const Json& each : *list->as_array()) {
    Fields fields(each);
    SavedFile file;
    const std::string* name = fields.text_in("name");
    if (name == nullptr || !is_file_name(*name) || !names.insert(*name).second)
      fields.wrong("files.name");
    else
      file.name = *name;
    fields.whole("size", file.size);
    fields.hexadecimal("xxh64", file.hash);
    all.adopt(fields);
    files.push_back(std::move(file));
  }
}

void read_loss_scale(Fields& all, std::optional<LossScale>& into) {
  Fields fields(all.object("loss_scale"));
  LossScale scale;
  const Json* number = all.object("loss_scale").find("scale");
  const std::optional<double> value = number == nullptr ? std::nullopt : number->as_number();
  if (!value) fields.wrong("loss_scale");
  scale.scale = static_cast<float>(value.value_or(0));
  fields.whole("good_steps", scale.good_steps);
  all.adopt(fields);
  into = scale;
}

Error broken(const std::string& why) {
  return Error(Code::invalid_argument, why);
}

/// Checks the version and the hash over the other fields.
Result<void> check_whole(const Json& json) {
  const Json* version = json.find(kFormatKey);
  if (version == nullptr) return broken("it is no document of a troupe checkpoint");
  if (version->as_whole<int>() != CheckpointDocument::kVersion)
    return broken("it has version " + version->dump().substr(0, 20) +
                  ", and this program reads version " +
                  std::to_string(CheckpointDocument::kVersion));
  Json rest = Json::object();
  for (const Json::Field& field : *json.as_object())
    if (field.name != kHashKey) rest[field.name] = field.value;
  const Json* hash = json.find(kHashKey);
  const std::string* text = hash == nullptr ? nullptr : hash->as_text();
  if (text == nullptr || *text != hex(hash_of(rest.dump(2))))
    return broken("its hash is not that of its contents");
  return {};
}

}  // namespace

std::string text_of(const CheckpointDocument& document) {
  Json json = json_of(document);
  json[kHashKey] = hex(identity_of(document));
  return json.dump(2) + "\n";
}

std::uint64_t identity_of(const CheckpointDocument& document) {
  return hash_of(json_of(document).dump(2));
}

Result<CheckpointDocument> document_of(std::string_view text) {
  const Result<Json> json = Json::parse(text);
  if (!json) return broken("it is no JSON: " + json.error().message());
  if (!json->is_object()) return broken("it is no document of a troupe checkpoint");
  if (const Result<void> checked = check_whole(*json); !checked) return checked.error();
  CheckpointDocument document;
  Fields fields(*json);
  fields.whole("step", document.step);
  fields.whole("steps", document.steps);
  fields.whole("seed", document.seed);
  fields.whole("passes", document.passes);
  fields.whole("batches", document.batches);
  fields.whole("moments_since", document.moments_since);
  fields.whole("engine", document.engine, -1);
  fields.hexadecimal("types", document.types);
  Fields data(fields.object("data"));
  data.whole("pass", document.data.pass);
  data.whole("samples", document.data.samples);
  data.whole("batch", document.data.batch);
  data.whole("seed", document.data.seed);
  fields.adopt(data);
  read_layout(fields, document.layout);
  read_files(fields, *json, document.files);
  if (json->find("loss_scale") != nullptr) read_loss_scale(fields, document.loss_scale);
  if (!fields.problem().empty())
    return broken("its field \"" + fields.problem() + "\" is missing or out of range");
  return document;
}

}  // namespace troupe::train

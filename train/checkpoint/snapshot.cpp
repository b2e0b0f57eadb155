#include "troupe/train/checkpoint/snapshot.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/checkpoint/internal/file_reader.hpp"
#include "troupe/train/checkpoint/internal/snapshot_metadata.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/train/internal/reject.hpp"

#include <array>
#include <charconv>
#include <map>
#include <new>
#include <string_view>
#include <utility>

namespace troupe::train {
namespace {

using internal::reject;

constexpr const char* kVersionKey = "troupe.snapshot";
constexpr const char* kVersion = "1";
constexpr const char* kStepKey = "step";
constexpr const char* kSeedKey = "seed";
constexpr const char* kScaleKey = "loss_scale";
constexpr const char* kGoodStepsKey = "loss_scale.good_steps";
constexpr const char* kMomentsKey = "moments_since";

constexpr std::pair<DType, FileType> kTypes[] = {
    {DType::f32, FileType::f32}, {DType::f64, FileType::f64}, {DType::bf16, FileType::bf16},
    {DType::f16, FileType::f16}, {DType::i32, FileType::i32}, {DType::i64, FileType::i64},
    {DType::u8, FileType::u8}};

FileType file_type_of(const NamedTensor& tensor) {
  for (const auto& [type, in_file] : kTypes)
    if (type == tensor.type) return in_file;
  reject("tensor " + tensor.name + " has no type");
}

DType type_of(const std::string& name, FileType type) {
  for (const auto& [own, in_file] : kTypes)
    if (in_file == type) return own;
  reject("tensor " + name + " has the type " + std::string(name_of(type)) +
         ", which no snapshot has");
}

/// Returns the error with the path in front of its message.
Error at_path(const std::string& path, const Error& error) {
  const std::string& message = error.message();
  if (message.find(path) != std::string::npos) return error;
  return Error(error.code(), path + ": " + message);
}

const std::string& entry_of(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end())
    reject("no snapshot: its metadata has no \"" + std::string(key) + "\"");
  return found->second;
}

/// Parses a number from the whole text. Returns false for any other text.
template <class T>
bool parse(const std::string& text, T& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} && end == text.data() + text.size();
}

std::int64_t step_of(const Metadata& metadata) {
  const std::string& text = entry_of(metadata, kStepKey);
  std::int64_t step = -1;
  if (!parse(text, step) || step < 0)
    reject("its step is no number of steps: \"" + text.substr(0, 40) + "\"");
  return step;
}

std::uint64_t seed_of(const Metadata& metadata) {
  const auto found = metadata.find(kSeedKey);
  std::uint64_t seed = 0;
  if (found != metadata.end() && !parse(found->second, seed))
    reject("its seed is no number: \"" + found->second.substr(0, 40) + "\"");
  return seed;
}

/// Engine::restore() compares it with the step.
std::int64_t moments_since_of(const Metadata& metadata) {
  const auto found = metadata.find(kMomentsKey);
  std::int64_t step = 0;
  if (found != metadata.end() && !parse(found->second, step))
    reject("the step of its first moments is no number: \"" + found->second.substr(0, 40) + "\"");
  return step;
}

std::optional<LossScale> loss_scale_of(const Metadata& metadata) {
  const auto scale = metadata.find(kScaleKey), steps = metadata.find(kGoodStepsKey);
  if (scale == metadata.end() || steps == metadata.end()) return {};
  LossScale read;
  if (!parse(scale->second, read.scale) || !parse(steps->second, read.good_steps))
    reject("its loss scale is no number: \"" + scale->second.substr(0, 40) + "\" behind \"" +
           steps->second.substr(0, 40) + "\" steps");
  LossScaler().restore(read);  // throws if it is invalid
  return read;
}

/// Returns the shortest text that parses to the same number.
std::string text_of(float value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

Snapshot snapshot_of(const internal::FileReader& file) {
  const Metadata& metadata = file.index.header.metadata;
  if (const std::string& version = entry_of(metadata, kVersionKey); version != kVersion)
    reject("a snapshot of version " + version.substr(0, 40) + ", and this program reads version " +
           kVersion);
  Snapshot snapshot{.step = step_of(metadata),
                    .seed = seed_of(metadata),
                    .tensors = {},
                    .loss_scale = loss_scale_of(metadata),
                    .moments_since = moments_since_of(metadata)};
  const std::vector<internal::HeaderEntry>& entries = file.index.header.entries;
  for (std::size_t i = 0; i < entries.size(); ++i)
    snapshot.tensors.push_back(
        {entries[i].name, type_of(entries[i].name, file.index.types[i]), entries[i].shape, {}});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::vector<std::byte>& bytes = snapshot.tensors[i].bytes;
    bytes.resize(static_cast<std::size_t>(entries[i].end - entries[i].begin));
    file.read(i, bytes).value();
  }
  return snapshot;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

std::string text_of(const TensorOf<BlobView>& tensor) {
  return std::string(kernels::name_of(tensor.type)) + text_of(tensor.shape);
}

std::map<std::string_view, const TensorOf<BlobView>*> by_name(
    const std::vector<TensorOf<BlobView>>& tensors) {
  std::map<std::string_view, const TensorOf<BlobView>*> names;
  for (const TensorOf<BlobView>& tensor : tensors) names.emplace(tensor.name, &tensor);
  return names;
}

/// Returns the first name that occurs twice; empty: none.
std::string duplicate(const std::vector<TensorOf<BlobView>>& tensors) {
  std::map<std::string_view, int> seen;
  for (const TensorOf<BlobView>& tensor : tensors)
    if (++seen[tensor.name] > 1) return tensor.name;
  return {};
}

}  // namespace

Snapshot copy_of(const SnapshotView& snapshot) {
  Snapshot copy{.step = snapshot.step,
                .seed = snapshot.seed,
                .tensors = {},
                .loss_scale = snapshot.loss_scale,
                .moments_since = snapshot.moments_since};
  for (const TensorOf<BlobView>& tensor : snapshot.tensors)
    copy.tensors.push_back(
        {tensor.name, tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
  return copy;
}

Metadata internal::metadata_of(const SnapshotView& snapshot) {
  Metadata metadata = {{kVersionKey, kVersion},
                       {kStepKey, std::to_string(snapshot.step)},
                       {kSeedKey, std::to_string(snapshot.seed)}};
  if (snapshot.loss_scale) {
    metadata[kScaleKey] = text_of(snapshot.loss_scale->scale);
    metadata[kGoodStepsKey] = std::to_string(snapshot.loss_scale->good_steps);
  }
  if (snapshot.moments_since != 0) metadata[kMomentsKey] = std::to_string(snapshot.moments_since);
  return metadata;
}

void write_snapshot(const std::string& path, const Snapshot& snapshot) {
  try {
    std::vector<FileTensor> tensors;
    for (const NamedTensor& tensor : snapshot.tensors)
      tensors.push_back({tensor.name, file_type_of(tensor), tensor.shape, tensor.bytes});
    const Metadata metadata = internal::metadata_of(view_of(snapshot));
    write_safetensors_file(path, tensors, metadata).value();
  } catch (const Error& error) {
    raise(at_path(path, error));
  }
}

Snapshot read_snapshot(const std::string& path) {
  try {
    constexpr std::uint64_t kAnySize = ~std::uint64_t{0};
    return snapshot_of(internal::open_safetensors(path, kAnySize).value());
  } catch (const Error& error) {
    raise(at_path(path, error));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(Code::out_of_memory, "no memory for the tensors of " + path);
  }
}

std::string difference(const std::vector<TensorOf<BlobView>>& have,
                       const std::vector<TensorOf<BlobView>>& want) {
  if (const std::string name = duplicate(have); !name.empty())
    return "tensor " + name + " is there twice";
  const auto present = by_name(have), wanted = by_name(want);
  for (const TensorOf<BlobView>& tensor : want) {
    const auto found = present.find(tensor.name);
    if (found == present.end()) return "tensor " + tensor.name + " is missing";
    if (found->second->type != tensor.type || found->second->shape != tensor.shape)
      return "tensor " + tensor.name + " is " + text_of(*found->second) + ", and " +
             text_of(tensor) + " is wanted";
  }
  for (const TensorOf<BlobView>& tensor : have)
    if (!wanted.contains(tensor.name)) return "tensor " + tensor.name + " is not wanted";
  return {};
}

}  // namespace troupe::train

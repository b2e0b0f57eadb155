#include "troupe/train/text.hpp"

#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace troupe::train {
namespace {

namespace fs = std::filesystem;

void append_file(std::string& text, const fs::path& path, std::uint64_t max_bytes) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 65536> chunk;
  while (in && text.size() < max_bytes) {
    const std::uint64_t wanted = std::min<std::uint64_t>(chunk.size(), max_bytes - text.size());
    in.read(chunk.data(), static_cast<std::streamsize>(wanted));
    text.append(chunk.data(), static_cast<std::size_t>(in.gcount()));
  }
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator walk(folder, fs::directory_options::skip_permission_denied,
                                        error);
  for (const fs::recursive_directory_iterator end; !error && walk != end; walk.increment(error))
    if (walk->symlink_status(error).type() == fs::file_type::regular) files.push_back(walk->path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::int64_t counted_targets(const Batch& batch) noexcept {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](std::int32_t target) { return target != kernels::kIgnore; });
}

double unigram_entropy(std::string_view text) {
  std::array<std::uint64_t, 256> counts{};
  for (const char c : text) ++counts[static_cast<unsigned char>(c)];
  double entropy = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(text.size());
    entropy -= share * std::log(share);
  }
  return entropy;
}

std::string read_text(const std::string& path, std::uint64_t max_bytes) {
  std::string text;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status))
    for (const fs::path& file : files_below(path)) append_file(text, file, max_bytes);
  else if (fs::is_regular_file(status))
    append_file(text, path, max_bytes);
  if (text.empty())
    internal::reject("no text could be read from " + path + ": give a readable file or folder");
  return text;
}

std::string read_standard_headers(std::uint64_t max_bytes) {
  return read_text("/usr/include/c++", max_bytes);
}

TextDataset::TextDataset(std::string text, const TextOptions& options)
    : text_(std::move(text)), context_(options.context) {
  internal::require(options.context > 0, "TextOptions.context must be positive");
  internal::require(options.block > options.context, "TextOptions.block must exceed the context");
  internal::require(options.held_out_every > 1, "TextOptions.held_out_every must be at least 2");
  const auto context = static_cast<std::uint64_t>(options.context);
  const auto block = static_cast<std::uint64_t>(options.block);
  const auto every = static_cast<std::uint64_t>(options.held_out_every);
  for (std::uint64_t first = 0, number = 0; first < text_.size(); first += block, ++number) {
    const std::uint64_t last = std::min<std::uint64_t>(first + block, text_.size());
    std::vector<std::uint64_t>& part = number % every == every - 1 ? held_out_ : train_;
    for (std::uint64_t start = first; start + context < last; start += context)
      part.push_back(start);
  }
  if (train_.empty() || held_out_.empty())
    internal::reject("the text of " + std::to_string(text_.size()) +
                     " bytes is too short to hold a part out: at least " +
                     std::to_string(block * every) + " bytes are needed, or smaller blocks");
}

Batch TextDataset::cut(const std::vector<std::uint64_t>& starts,
                       std::span<const std::uint64_t> indices) const {
  Batch batch;
  batch.rows = static_cast<std::int64_t>(indices.size());
  batch.time = context_;
  batch.inputs.reserve(indices.size() * static_cast<std::size_t>(context_));
  batch.targets.reserve(batch.inputs.capacity());
  for (const std::uint64_t index : indices) {
    if (index >= starts.size())
      internal::reject("window " + std::to_string(index) + " of " + std::to_string(starts.size()) +
                       " does not exist");
    const auto* bytes = reinterpret_cast<const unsigned char*>(text_.data()) + starts[index];
    batch.inputs.insert(batch.inputs.end(), bytes, bytes + context_);
    batch.targets.insert(batch.targets.end(), bytes + 1, bytes + context_ + 1);
  }
  return batch;
}

}  // namespace troupe::train

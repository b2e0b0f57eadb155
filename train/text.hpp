/// TextDataset: text files as training data for language models. Tokens are bytes, so no
/// vocabulary is needed.
///
///     TextDataset data(read_text("/usr/share/common-licenses", 8 << 20), {.context = 64});
///     Batch batch = data.batch(std::vector<std::uint64_t>{0, 7, 9});
///     double bar = 0.8 * unigram_entropy(data.text());
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace troupe::train {

/// Rows of input tokens, and for each token the one that follows it. Both are [rows, time],
/// row-major.
struct Batch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::int64_t rows = 0;
  std::int64_t time = 0;
};

/// Returns the number of targets other than kernels::kIgnore, which the mean loss of a batch is
/// over.
TROUPE_API std::int64_t counted_targets(const Batch& batch) noexcept;

/// Returns the entropy of a text's single bytes in nats. It is the loss of a model that knows
/// only the frequency of each byte. 0 for an empty text.
TROUPE_API double unigram_entropy(std::string_view text);

/// Returns the content of a file, or of all regular files below a folder in the order of their
/// paths, cut at max_bytes. Symbolic links below a folder are not followed. Throws
/// InvalidArgument when there is nothing to read.
TROUPE_API std::string read_text(const std::string& path, std::uint64_t max_bytes);
/// Returns the C++ headers of this machine's compiler: a few MB of text on any machine that can
/// build troupe.
TROUPE_API std::string read_standard_headers(std::uint64_t max_bytes);

struct TextOptions {
  std::int64_t context = 64;  ///< tokens in a row
  /// Bytes in a block. The text is cut into blocks, and every held_out_every-th block is held
  /// out. Blocks keep the two parts alike when the text is many files in a row.
  std::int64_t block = 16384;
  std::int64_t held_out_every = 16;
};

/// Windows of `context` tokens, cut side by side within the training blocks and the held-out
/// blocks. Immutable.
class TROUPE_API TextDataset {
 public:
  TextDataset() = default;
  /// Throws InvalidArgument when options are out of range or a part would have no window.
  explicit TextDataset(std::string text, const TextOptions& options = {});

  /// Numbers of training windows and of held-out windows.
  std::uint64_t size() const noexcept { return train_.size(); }
  std::uint64_t held_out_size() const noexcept { return held_out_.size(); }
  /// Returns the windows of these indices, in their order. Throws InvalidArgument for an index
  /// that is not below size(), or held_out_size().
  Batch batch(std::span<const std::uint64_t> indices) const { return cut(train_, indices); }
  Batch held_out(std::span<const std::uint64_t> indices) const { return cut(held_out_, indices); }
  const std::string& text() const noexcept { return text_; }
  std::int64_t context() const noexcept { return context_; }

  friend auto fields(TextDataset& d) {
    return std::tie(d.text_, d.context_, d.train_, d.held_out_);
  }
  friend auto fields(const TextDataset& d) {
    return std::tie(d.text_, d.context_, d.train_, d.held_out_);
  }

 private:
  Batch cut(const std::vector<std::uint64_t>& starts, std::span<const std::uint64_t> indices) const;

  std::string text_;
  std::int64_t context_ = 0;
  std::vector<std::uint64_t> train_, held_out_;  // first byte of each window
};

}  // namespace troupe::train

/// Real text as training data: bytes are the tokens, so there is no vocabulary to build or ship.
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

/// Rows of tokens with the token that follows each; both are [rows, time], row-major.
struct Batch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::int64_t rows = 0;
  std::int64_t time = 0;
};

/// Targets that are not kernels::kIgnore: what the loss of a batch is a mean over.
TROUPE_API std::int64_t counted_targets(const Batch& batch) noexcept;

/// Entropy of the single bytes of a text in nats: the loss of a model that knows only how frequent
/// each byte is. 0 for an empty text.
TROUPE_API double unigram_entropy(std::string_view text);

/// The content of a file, or of all regular files below a folder in the order of their paths, up to
/// max_bytes. Symbolic links are not followed. Throws InvalidArgument when there is nothing to
/// read.
TROUPE_API std::string read_text(const std::string& path, std::uint64_t max_bytes);
/// The C++ headers of this machine's own compiler: a few MB of text wherever troupe can be built.
TROUPE_API std::string read_standard_headers(std::uint64_t max_bytes);

struct TextOptions {
  std::int64_t context = 64;  ///< tokens in a row
  /// The text is cut into blocks of this many bytes; every held_out_every-th one is held out.
  /// Blocks keep the two parts alike when the text is many files in a row.
  std::int64_t block = 16384;
  std::int64_t held_out_every = 16;
};

/// Windows of `context` tokens that lie side by side within the blocks of their part. Immutable.
class TROUPE_API TextDataset {
 public:
  TextDataset() = default;
  /// Throws InvalidArgument when options are out of range or a part would have no window.
  explicit TextDataset(std::string text, const TextOptions& options = {});

  /// Windows for training, and held out.
  std::uint64_t size() const noexcept { return train_.size(); }
  std::uint64_t held_out_size() const noexcept { return held_out_.size(); }
  /// The windows of these indices, in their order. Throws InvalidArgument for one that is not below
  /// size().
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

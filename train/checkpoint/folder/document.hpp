/// CheckpointDocument: the contents of a checkpoint's checkpoint.json.
///
///     std::string text = text_of(document);
///     Result<CheckpointDocument> read = document_of(text);   // checks the text's own hash
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/optimizers/loss_scaler.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train {

/// A file of a checkpoint, as it was written.
struct SavedFile {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t hash = 0;  ///< XXH64 of all its bytes
  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// The data that a pass of a training loop reads, and their order.
struct DataOrder {
  std::uint64_t pass = 0;  ///< its number, from 1; 0: no pass had begun
  std::uint64_t samples = 0, batch = 0, seed = 0;
  friend bool operator==(const DataOrder&, const DataOrder&) = default;
};

struct CheckpointDocument {
  static constexpr int kVersion = 1;

  long step = 0;           ///< of the loop
  std::int64_t steps = 0;  ///< that the engine has applied
  std::uint64_t seed = 0;
  /// Position of the loop in its data: passes that have ended, and batches of the pass after
  /// them.
  std::uint64_t passes = 0, batches = 0;
  DataOrder data;
  std::optional<LossScale> loss_scale = {};
  std::int64_t moments_since = 0;
  Layout layout;            ///< of the gang that saved it
  int engine = -1;          ///< which part of the checkpoint is the engine; -1: none
  std::uint64_t types = 0;  ///< fingerprint of the parts' types
  std::vector<SavedFile> files;

  std::uint64_t bytes() const noexcept {
    std::uint64_t all = 0;
    for (const SavedFile& file : files) all += file.size;
    return all;
  }
};

/// Returns the document as JSON. Its last field is the XXH64 of the others, so a changed value is
/// found. Numbers of 64 bits without a meaning as a number are hexadecimal texts.
TROUPE_API std::string text_of(const CheckpointDocument& document);
/// Errors (invalid_argument) say what is wrong: no JSON, another program's document, a newer
/// version, a changed value, a field that is missing or out of range, or a file name that leads
/// out of the folder.
TROUPE_API Result<CheckpointDocument> document_of(std::string_view text);
/// Returns the hash of the document, which stands for the contents of the whole checkpoint.
TROUPE_API std::uint64_t identity_of(const CheckpointDocument& document);

}  // namespace troupe::train

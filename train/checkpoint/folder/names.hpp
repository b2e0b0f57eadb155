/// Names of the files and folders of a run's checkpoints.
///
///     FOLDER/step-00000100/model-00001-of-00003.safetensors
///     FOLDER/.step-00000100.ID.tmp/     while the ranks write it
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::train {

inline constexpr const char* kDocumentFile = "checkpoint.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kPartsFile = "parts.bin";
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kReportsFile = "reports.jsonl";

/// What a file of tensors has: the weights, or the moments of the optimizer.
enum class FileKind : std::uint8_t { model, optimizer };

/// Returns "step-00000100"; a step of more than eight digits gets more. Precondition: step >= 0.
TROUPE_API std::string step_folder_name(long step);
/// Returns the step of a name that step_folder_name() makes; nothing for any other name.
TROUPE_API std::optional<long> step_of_folder(std::string_view name);
/// Returns ".step-00000100.ID.tmp", the folder into which a gang's ranks write.
TROUPE_API std::string writing_folder_name(long step, std::string_view id);
/// Returns whether writing_folder_name() makes that name.
TROUPE_API bool is_writing_folder(std::string_view name);
/// Returns the name under which a folder that was skipped makes room for a new one.
TROUPE_API std::string skipped_folder_name(long step, std::string_view id);
/// Returns "model-00001-of-00003.safetensors". `number` counts from 1.
TROUPE_API std::string tensor_file_name(FileKind kind, int number, int of);
/// Returns the kind of a name that tensor_file_name() makes; nothing for any other name.
TROUPE_API std::optional<FileKind> kind_of_file(std::string_view name);
/// Returns whether a checkpoint may list the name: letters, digits, '-', '_' and '.', with no dot
/// at its beginning. Such a name leads to no other folder.
TROUPE_API bool is_file_name(std::string_view name);

}  // namespace troupe::train

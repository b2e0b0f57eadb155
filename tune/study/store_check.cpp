#include "troupe/tune/study/internal/store_check.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/storage/damage.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/tune/study/internal/files.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

namespace troupe::tune::internal {
namespace {

namespace fs = std::filesystem;

/// Returns the newest log with its size: where a store that lacks its end ends.
std::string end_of_log(const std::string& store) {
  std::string last;
  std::error_code error;
  for (fs::directory_iterator at(store, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".log") last = std::max(last, at->path().string());
  if (last.empty()) return store + ", offset 0";
  const auto size = fs::file_size(last, error);
  return last + ", offset " + std::to_string(error ? 0 : size);
}

std::string where_in(const std::string& folder) {
  const std::string store = folder + "/store";
  const std::string found = storage::find_damage(store);
  return found.empty() ? end_of_log(store) : found;
}

std::string mark_text(std::uint64_t event) {
  const std::string number = std::to_string(event);
  char text[64];
  std::snprintf(text, sizeof text, "%s %016llx\n", number.c_str(),
                static_cast<unsigned long long>(train::hash_bytes(number.data(), number.size())));
  return text;
}

/// Refuses the description of another schema.
Result<void> check_schema(std::string_view meta, const std::string& folder) {
  const Result<Json> json = Json::parse(meta);
  const Json* schema = json ? json->find("schema") : nullptr;
  if (json && schema == nullptr) schema = json->find("version");
  const auto number = schema != nullptr ? schema->as_whole<int>() : std::nullopt;
  if (number == kStudySchema) return {};
  return Error(Code::invalid_argument,
               "tune: the study " + folder + " is of schema " +
                   (number ? std::to_string(*number) : std::string("unknown")) +
                   ", and this version reads schema " + std::to_string(kStudySchema) +
                   ": use the version that made it, or give another folder");
}

}  // namespace

storage::OpenOptions database_options(bool create) {
  return {.create = create,
          .to_a_point_in_time = true,
          .compress = true,
          .buffer = 4 << 20,
          .most_log = 8 << 20};
}

Error damaged(const std::string& folder, const std::string& where, const std::string& what) {
  return Error(Code::invalid_argument,
               "tune: the study " + folder + " is damaged: " + where + ": " + what +
                   "; it is not opened, since events may be missing. Put back an intact copy, or "
                   "save what can be read with `troupe tune doctor " +
                   folder + " --to saved.jsonl`");
}

Error error_of(const storage::Status& status, const std::string& what, const std::string& folder) {
  using Kind = storage::Status::Kind;
  if (status.kind == Kind::damaged) return damaged(folder, where_in(folder), status.text);
  const Code code = status.kind == Kind::no_space ? Code::out_of_disk : Code::unavailable;
  return Error(code, "tune: cannot " + what + " the study " + folder + ": " + status.text,
               troupe::Outcome::unknown);
}

Result<void> write_mark(const std::string& path, std::uint64_t event) {
  return replace_file(path, mark_text(event));
}

std::optional<std::uint64_t> read_mark(const std::string& path) {
  const Result<std::string> text = read_file(path, 64);
  if (!text) return std::nullopt;
  std::uint64_t event = 0;
  const auto read = std::from_chars(text->data(), text->data() + text->size(), event);
  if (read.ec != std::errc() || mark_text(event) != *text) return std::nullopt;
  return event;
}

Result<std::uint64_t> check_store(storage::Database& db, const std::string& folder,
                                  std::uint64_t synced) {
  std::uint64_t last = 0;
  std::string gap, meta;
  const auto status = db.scan("", [&](std::string_view key, std::string_view value) {
    if (key == kMetaKey) meta = value;
    if (!key.starts_with(kEvents)) return;
    const std::uint64_t number = number_in(key.substr(std::string_view(kEvents).size()));
    if (gap.empty() && number != last + 1)
      gap = "event " + std::to_string(number) + " follows event " + std::to_string(last);
    last = number;
  });
  if (!status.ok()) return error_of(status, "read", folder);
  if (!meta.empty())
    if (auto schema = check_schema(meta, folder); !schema) return schema.error();
  if (!gap.empty()) return damaged(folder, where_in(folder), gap);
  if (last < synced)
    return damaged(folder, where_in(folder),
                   "the last event is " + std::to_string(last) + ", and event " +
                       std::to_string(synced) + " was synced");
  return last;
}

}  // namespace troupe::tune::internal

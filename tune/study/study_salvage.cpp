#include "troupe/tune/study/study_salvage.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/storage/database.hpp"
#include "troupe/tune/study/internal/files.hpp"
#include "troupe/tune/study/internal/store_check.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"
#include "troupe/tune/study/study_folder.hpp"

#include <stdlib.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::tune {

namespace {

namespace fs = std::filesystem;
using Records = std::map<std::string, std::string>;

/// A folder for copies. The destructor removes it.
class Workshop {
 public:
  explicit Workshop(std::string path) : path_(std::move(path)) {}
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  /// Copies the store and returns the copy's path. Files that cannot be read are left out.
  std::string copy(const std::string& store, const std::string& name,
                   std::vector<std::string>& notes) const {
    std::string to = path_ + "/" + name;
    std::error_code error;
    fs::create_directory(to, error);
    for (fs::directory_iterator at(store, error), end; !error && at != end; at.increment(error)) {
      std::error_code one;
      fs::copy_file(at->path(), fs::path(to) / at->path().filename(), one);
      if (one) notes.push_back(at->path().string() + ": " + one.message());
    }
    if (error) notes.push_back(store + ": " + error.message());
    return to;
  }

 private:
  std::string path_;
};

std::unique_ptr<Workshop> make_workshop() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "troupe-doctor-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr) return nullptr;
  return std::make_unique<Workshop>(path);
}

/// Returns why the study does not open; empty when it does.
std::string why_damaged(const storage::Door& door, const StudyFolder& folder,
                        std::optional<std::uint64_t> synced) {
  if (!synced)
    return internal::damaged(folder.path(), folder.mark_path() + ", offset 0",
                             "it does not name the last synced event")
        .message();
  std::unique_ptr<storage::Database> db;
  const auto status = door.open_to_read(folder.store_path(), internal::database_options(false), db);
  if (!status.ok()) return internal::error_of(status, "open", folder.path()).message();
  const auto checked = internal::check_store(*db, folder.path(), *synced);
  return checked ? std::string() : checked.error().message();
}

/// Adds the records of one kind after the other, so that a bad one hides only later ones of its
/// kind.
void read_all(storage::Database& db, Records& found, std::vector<std::string>& notes) {
  for (const char* prefix :
       {internal::kMetaKey, internal::kEvents, internal::kTrials, internal::kReports,
        internal::kCheckpoints, internal::kClients, internal::kExporters}) {
    const auto status = db.scan(
        prefix, [&](std::string_view key, std::string_view value) { found.emplace(key, value); });
    if (!status.ok()) notes.push_back("not all of " + std::string(prefix) + ": " + status.text);
  }
}

Records read_leftovers(const storage::Door& door, const Workshop& shop, const std::string& store,
                       std::vector<std::string>& notes) {
  Records found;
  std::unique_ptr<storage::Database> db;
  auto status = door.open_leniently(shop.copy(store, "lenient", notes), db);
  if (status.ok()) read_all(*db, found, notes);
  if (status.ok() && notes.empty()) return found;
  if (!status.ok()) notes.push_back("the store was repaired in a copy: " + status.text);
  db.reset();
  std::vector<std::string> ignored;
  const std::string repaired = shop.copy(store, "repaired", ignored);
  status = door.repair(repaired);
  if (status.ok()) status = door.open_leniently(repaired, db);
  if (status.ok())
    read_all(*db, found, notes);
  else
    notes.push_back("nor can it be repaired: " + status.text);
  return found;
}

/// Describes a record as one line; nothing for a key that is no study's.
std::optional<Json> line_of(std::string_view key, const std::string& value) {
  Json line = Json::object();
  const auto name = [&](const char* kind, const char* field) {
    line["kind"] = kind;
    line[field] = key.substr(2);
  };
  if (key == internal::kMetaKey) {
    line["kind"] = "meta";
  } else if (key.starts_with(internal::kEvents) && key.size() == 2 + internal::kEventWidth) {
    line["kind"] = "event";
    line["number"] = internal::number_in(key.substr(2));
  } else if (key.starts_with(internal::kTrials) && key.size() == 2 + internal::kTrialWidth) {
    line["kind"] = "trial";
    line["number"] = internal::number_in(key.substr(2));
  } else if (key.starts_with(internal::kReports) &&
             key.size() == 3 + internal::kTrialWidth + internal::kStepWidth) {
    line["kind"] = "report";
    line["trial"] = internal::number_in(key.substr(2, internal::kTrialWidth));
    line["step"] = internal::number_in(key.substr(3 + internal::kTrialWidth));
  } else if (key.starts_with(internal::kCheckpoints)) {
    name("checkpoint", "key");
  } else if (key.starts_with(internal::kClients)) {
    name("client", "name");
  } else if (key.starts_with(internal::kExporters)) {
    name("exporter", "name");
  } else {
    return std::nullopt;
  }
  Result<Json> json = Json::parse(value);
  line["value"] = json ? std::move(*json) : Json(value);
  return line;
}

/// Counts the records and returns them as lines.
std::string lines_of(const Records& records, StudySalvage& seen) {
  std::string lines;
  std::uint64_t events = 0;
  for (const auto& [key, value] : records) {
    const auto line = line_of(key, value);
    if (!line) continue;
    const std::string kind = *line->find("kind")->as_text();
    ++seen.records[kind];
    if (kind == "event") {
      ++events;
      seen.last_event =
          std::max(seen.last_event, internal::number_in(std::string_view(key).substr(2)));
    }
    lines += line->dump(-1, Json::Order::as_added) + "\n";
  }
  seen.missing_events = std::max(seen.last_event, seen.synced_event) - events;
  return lines;
}

}  // namespace

Result<StudySalvage> salvage_study(const std::string& given, const std::string& to) {
  if (!to.empty() && internal::exists(to))
    return Error(Code::invalid_argument,
                 "tune: " + to + " is there already: name a file that is not");
  const auto folder = StudyFolder::open(given, StudyFolder::Use::read);
  if (!folder) return folder.error();
  const auto door = storage::door();
  if (!door) return door.error();
  const auto shop = make_workshop();
  if (!shop)
    return internal::failed("make a folder for copies in", fs::temp_directory_path().string(),
                            errno);
  StudySalvage seen;
  const auto synced = internal::read_mark(folder->mark_path());
  seen.synced_event = synced.value_or(0);
  seen.why = why_damaged(**door, *folder, synced);
  seen.damaged = !seen.why.empty();
  const Records records = read_leftovers(**door, *shop, folder->store_path(), seen.notes);
  const std::string lines = lines_of(records, seen);
  if (lines.empty() && seen.damaged)
    return Error(Code::invalid_argument, "tune: nothing of the study " + folder->path() +
                                             " can be read; only a backup helps");
  if (!to.empty())
    if (auto written = internal::replace_file(to, lines); !written) return written.error();
  return seen;
}

}  // namespace troupe::tune

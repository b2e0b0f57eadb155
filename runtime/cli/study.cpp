/// The verbs `troupe tune`: which studies a folder has, what one has, and what can be saved of one.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/tune/study/study_salvage.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

void need_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw Failure{Exit::usage, Error(Code::invalid_argument, path + " is no folder")};
}

/// The row of a trial, as far as the verbs show it.
struct Row {
  std::uint64_t number = 0;
  Json json = Json::object();
};

/// What a study has, or why it cannot be read.
struct Study {
  std::string path;
  std::optional<tune::StudyOwner> owner;  ///< of one that runs
  std::string problem;
  Json meta = Json::object();
  std::uint64_t events = 0;
  std::vector<Row> trials;
};

std::string text_in(const Json& json, std::string_view name) {
  const Json* field = json.find(name);
  if (field == nullptr || field->is_null()) return "–";
  if (const std::string* text = field->as_text()) return *text;
  return field->dump();
}

double score_of(const Row& row) {
  const Json* score = row.json.find("score");
  return score != nullptr ? score->as_number().value_or(std::nan("")) : std::nan("");
}

/// Returns the trial with the best score; none when no row has one.
const Row* best_of(const Study& study) {
  const bool largest = text_in(study.meta, "goal") == "maximize";
  const Row* best = nullptr;
  for (const Row& row : study.trials) {
    const double score = score_of(row);
    if (std::isnan(score)) continue;
    if (best == nullptr || (largest ? score > score_of(*best) : score < score_of(*best)))
      best = &row;
  }
  return best;
}

Study read_study(const std::string& path) {
  Study study{.path = path};
  const auto reader = tune::StudyReader::open(path).value();
  const tune::StudyRows& rows = reader.rows();
  study.events = reader.last_event();
  if (const auto meta = rows.meta().value())
    if (auto json = Json::parse(*meta); json && json->is_object()) study.meta = std::move(*json);
  rows.trials(0,
              [&](std::uint64_t number, std::string_view text) {
                Row row{.number = number};
                if (auto json = Json::parse(text); json && json->is_object())
                  row.json = std::move(*json);
                study.trials.push_back(std::move(row));
                return true;
              })
      .value();
  return study;
}

/// Reads a study of a list. One that runs, or cannot be read, is listed too.
Study look_at(const std::string& path) {
  try {
    return read_study(path);
  } catch (const Unavailable& error) {
    return {.path = path, .owner = tune::StudyFolder::owner_of(path), .problem = error.message()};
  } catch (const Error& error) {
    return {.path = path, .problem = error.message()};
  }
}

std::string state_of(const Study& study) {
  if (study.owner)
    return "runs (pid " + std::to_string(study.owner->pid) + " on " + study.owner->host + ")";
  return study.problem.empty() ? "idle" : "cannot be read";
}

Json document_of(const Study& study, bool with_trials) {
  Json json{{"folder", study.path},
            {"state", study.owner             ? "running"
                      : study.problem.empty() ? "idle"
                                              : "unreadable"}};
  if (study.owner) json["owner"] = Json{{"host", study.owner->host}, {"pid", study.owner->pid}};
  if (!study.problem.empty()) {
    json["problem"] = study.problem;
    return json;
  }
  json["meta"] = study.meta;
  json["events"] = study.events;
  json["trials"] = study.trials.size();
  const Row* best = best_of(study);
  json["best"] = best != nullptr ? Json(best->number) : Json();
  if (!with_trials) return json;
  Json rows = Json::array();
  for (const Row& row : study.trials) {
    Json trial = row.json;
    trial["number"] = row.number;
    rows.push_back(std::move(trial));
  }
  json["trials"] = std::move(rows);
  return json;
}

std::string params_text(const Row& row) {
  const Json* params = row.json.find("params");
  if (params == nullptr || params->as_object() == nullptr) return "–";
  std::string text;
  for (const Json::Field& field : *params->as_object())
    text += (text.empty() ? "" : " ") + field.name + "=" + text_in(*params, field.name);
  return text;
}

std::string best_text(const Study& study) {
  const Row* best = best_of(study);
  if (best == nullptr) return "no score";
  return text_in(study.meta, "metric") + " " + text_in(best->json, "score") + " (trial " +
         std::to_string(best->number) + ")";
}

}  // namespace

Exit list_studies(const StudyRequest& request) {
  need_folder(request.folder);
  std::error_code error;
  std::vector<std::string> paths;
  if (tune::StudyFolder::holds_study(request.folder)) paths.push_back(request.folder);
  for (fs::directory_iterator at(request.folder, error), end; !error && at != end;
       at.increment(error))
    if (tune::StudyFolder::holds_study(at->path().string())) paths.push_back(at->path().string());
  std::sort(paths.begin(), paths.end());
  Json list = Json::array();
  std::vector<std::vector<std::string>> table{{"FOLDER", "STATE", "TRIALS", "BEST"}};
  for (const std::string& path : paths) {
    const Study study = look_at(path);
    if (request.json) list.push_back(document_of(study, false));
    const bool known = study.problem.empty();
    table.push_back({path, state_of(study), known ? std::to_string(study.trials.size()) : "–",
                     known ? best_text(study) : "–"});
  }
  if (request.json)
    print({{"studies", list}});
  else if (paths.empty())
    std::printf("%s has no study\n", request.folder.c_str());
  else
    std::printf("%s", table_text(table).c_str());
  return Exit::ok;
}

Exit show_study(const StudyRequest& request) {
  need_folder(request.folder);
  const Study study = read_study(request.folder);
  if (request.json) {
    print(document_of(study, true));
    return Exit::ok;
  }
  const std::string head = request.folder + ": " + text_in(study.meta, "name") + ", " +
                           std::to_string(study.trials.size()) + " trials, " +
                           std::to_string(study.events) + " events, best " + best_text(study);
  std::printf("%s\n", visible_text(head).c_str());
  std::vector<std::vector<std::string>> table{
      {"TRIAL", "STATE", "ATTEMPT", "STEP", "SCORE", "PARAMETERS"}};
  for (const Row& row : study.trials)
    table.push_back({std::to_string(row.number), text_in(row.json, "state"),
                     text_in(row.json, "attempt"), text_in(row.json, "step"),
                     text_in(row.json, "score"), params_text(row)});
  if (!study.trials.empty()) std::printf("%s", table_text(table).c_str());
  return Exit::ok;
}

Exit doctor_study(const StudyRequest& request) {
  need_folder(request.folder);
  const tune::StudySalvage seen = tune::salvage_study(request.folder, request.to).value();
  if (request.json) {
    Json records = Json::object();
    for (const auto& [kind, count] : seen.records) records[kind] = count;
    Json result{{"folder", request.folder},
                {"damaged", seen.damaged},
                {"why", seen.why},
                {"records", records},
                {"last_event", seen.last_event},
                {"synced_event", seen.synced_event},
                {"missing_events", seen.missing_events},
                {"notes", seen.notes}};
    if (!request.to.empty()) result["written_to"] = request.to;
    print(result);
    return Exit::ok;
  }
  if (seen.damaged)
    std::printf("%s\n",
                visible_text(seen.why.substr(0, seen.why.find("; it is not opened"))).c_str());
  else
    std::printf("%s is whole: a program goes on with it as it is.\n", request.folder.c_str());
  std::string kinds;
  for (const auto& [kind, count] : seen.records)
    kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " " + kind +
             (count == 1 || kind == "meta" ? "" : "s");
  std::printf("Can be read: %s.\n", kinds.empty() ? "no record" : kinds.c_str());
  for (const std::string& note : seen.notes)
    std::printf("Cannot be read: %s\n", visible_text(note).c_str());
  if (seen.missing_events > 0)
    std::printf("%llu events up to event %llu are missing.\n",
                static_cast<unsigned long long>(seen.missing_events),
                static_cast<unsigned long long>(std::max(seen.last_event, seen.synced_event)));
  if (request.to.empty())
    std::printf("Nothing was written: name a new file with --to.\n");
  else
    std::printf("Written to %s, one record a line.\n", request.to.c_str());
  return Exit::ok;
}

}  // namespace troupe::cli

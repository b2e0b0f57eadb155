/// The verbs `troupe tune list`, `show` and `doctor`: which studies a folder has, what one has, and
/// what can be saved of one.
#include "troupe/runtime/cli/internal/study.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/tune/study/study_salvage.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;
using About = tune::StudyQuestion::About;

constexpr Duration kStudyPause =
    std::chrono::milliseconds(500);  ///< between two rounds of --follow

struct Best {
  std::uint64_t trial = 0;
  std::string score;
};

/// What a study has, or why it cannot be read.
struct Study {
  std::string path;
  std::optional<tune::StudyOwner> owner;  ///< of one that runs
  std::string problem;
  Json state = Json::object();
  Json meta = Json::object();
  std::uint64_t events = 0, count = 0;
  std::optional<Best> best;
  std::vector<StudyRow> trials;
};

double score_of(const StudyRow& row) {
  const Json* score = row.json.find("score");
  return score != nullptr ? score->as_number().value_or(std::nan("")) : std::nan("");
}

/// Returns the trial with the best score; none when no row has one.
std::optional<Best> best_of(const Study& study) {
  const bool largest = text_in(study.meta, "goal") == "maximize";
  const StudyRow* best = nullptr;
  for (const StudyRow& row : study.trials) {
    const double score = score_of(row);
    if (std::isnan(score)) continue;
    if (best == nullptr || (largest ? score > score_of(*best) : score < score_of(*best)))
      best = &row;
  }
  if (best == nullptr) return std::nullopt;
  return Best{best->number, text_in(best->json, "score")};
}

std::uint64_t whole_in(const Json& json, std::string_view name) {
  const Json* field = json.find(name);
  return field != nullptr ? field->as_whole<std::uint64_t>().value_or(0) : 0;
}

/// Reads the rows of the trials only if they are wanted, or if the best one is found only there.
Study read_study(const std::string& path, bool with_rows) {
  Study study{.path = path};
  auto client = tune::StudyClient::open(path).value();
  study.owner = client.owner();
  study.state = client.ask({}).value();
  if (const Json* meta = study.state.find("meta"); meta != nullptr) study.meta = *meta;
  study.events = whole_in(study.state, "events");
  study.count = whole_in(study.state, "trials");
  const Json* best = study.state.find("best");
  const bool owner_knows = study.state.find("planned") != nullptr;
  if (with_rows || !owner_knows)
    each_row(client, [&study](StudyRow row) { study.trials.push_back(std::move(row)); });
  if (best != nullptr)
    study.best = Best{whole_in(*best, "trial"), text_in(*best, "score")};
  else if (!owner_knows)
    study.best = best_of(study);
  return study;
}

/// Reads a study of a list. One whose owner does not answer, or that cannot be read, is listed too.
Study look_at(const std::string& path) {
  try {
    return read_study(path, false);
  } catch (const Error& error) {
    const bool runs = error.code() == Code::unavailable || error.code() == Code::timed_out;
    return {.path = path,
            .owner = runs ? tune::StudyFolder::owner_of(path) : std::nullopt,
            .problem = error.message()};
  }
}

bool is_paused(const Study& study) {
  const Json* paused = study.state.find("paused");
  return paused != nullptr && paused->as_bool() != nullptr && *paused->as_bool();
}

std::string state_of(const Study& study) {
  if (study.owner)
    return std::string(is_paused(study) ? "is paused" : "runs") + " (pid " +
           std::to_string(study.owner->pid) + " on " + study.owner->host + ")";
  if (!study.problem.empty()) return "cannot be read";
  return is_paused(study) ? "idle, paused" : "idle";
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
  json["paused"] = is_paused(study);
  json["events"] = study.events;
  for (const char* name : {"planned", "slots", "over", "why_over", "seconds", "reports"})
    if (const Json* field = study.state.find(name)) json[name] = *field;
  json["best"] = study.best ? Json(study.best->trial) : Json();
  json["trials"] = study.count;
  if (!with_trials) return json;
  Json rows = Json::array();
  for (const StudyRow& row : study.trials) rows.push_back(row_document(row));
  json["trials"] = std::move(rows);
  return json;
}

std::string best_text(const Study& study) {
  if (!study.best) return "no score";
  return text_in(study.meta, "metric") + " " + study.best->score + " (trial " +
         std::to_string(study.best->trial) + ")";
}

/// Prints the events that people are shown. With `json` it prints all, each as one line.
std::uint64_t print_events(const Json& page, bool json) {
  const Json* events = page.find("events");
  if (events == nullptr || events->as_array() == nullptr) return 0;
  for (const Json& event : *events->as_array()) {
    if (json) {
      std::printf("%s\n", event.dump().c_str());
    } else if (event.find("words") != nullptr) {
      const Json* fields = event.find("event");
      const Json* at = fields != nullptr ? fields->find("t") : nullptr;
      std::printf("%9.1f s  %s\n", at != nullptr ? at->as_number().value_or(0) : 0.0,
                  visible_text(text_in(event, "words")).c_str());
    }
  }
  std::fflush(stdout);
  return events->as_array()->size();
}

/// Prints the events after the first `seen` ones until the study is over or its process ends.
void follow_study(const std::string& path, std::uint64_t seen, bool json) {
  auto client = tune::StudyClient::open(path).value();
  tune::StudyQuestion question{.about = About::events, .from = seen + 1};
  while (is_read()) {
    const auto state =
        client.ask({});  // before the page, which then has all of a study that is over
    const auto page = state ? client.ask(question) : state;
    if (!page && page.error().code() == Code::unavailable) {
      std::fprintf(stderr, "troupe: the process of %s has ended\n", path.c_str());
      return;
    }
    const bool is_dry = print_events(page.value(), json) == 0;
    const Json* over = state->find("over");
    question.from = std::max(question.from, whole_in(*page, "next"));
    if (!is_dry) continue;
    if (!client.owner() || (over != nullptr && over->as_bool() != nullptr && *over->as_bool())) {
      std::fprintf(stderr, "troupe: %s %s\n", path.c_str(),
                   client.owner()
                       ? ("is over: " + visible_text(text_in(*state, "why_over"), 200)).c_str()
                       : "is run by no process, so that nothing new comes");
      return;
    }
    std::this_thread::sleep_for(kStudyPause);
  }
}

std::string params_text(const StudyRow& row) {
  const Json* params = row.json.find("params");
  if (params == nullptr || params->as_object() == nullptr) return "–";
  std::string text;
  for (const Json::Field& field : *params->as_object())
    text += (text.empty() ? "" : " ") + field.name + "=" + text_in(*params, field.name);
  return text;
}

}  // namespace

void need_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw Failure{Exit::usage, Error(Code::invalid_argument, path + " is no folder")};
}

std::string text_in(const Json& json, std::string_view name) {
  const Json* field = json.find(name);
  if (field == nullptr || field->is_null()) return "–";
  if (const std::string* text = field->as_text()) return *text;
  return field->dump();
}

Json row_document(const StudyRow& row) {
  Json trial = row.json;
  trial["number"] = row.number;
  return trial;
}

void print_rows(const std::vector<StudyRow>& rows) {
  if (rows.empty()) return;
  std::vector<std::vector<std::string>> table{
      {"TRIAL", "STATE", "ATTEMPT", "STEP", "SCORE", "PARAMETERS"}};
  for (const StudyRow& row : rows)
    table.push_back({std::to_string(row.number), text_in(row.json, "state"),
                     text_in(row.json, "attempt"), text_in(row.json, "step"),
                     text_in(row.json, "score"), params_text(row)});
  std::printf("%s", table_text(table).c_str());
}

void each_row(tune::StudyClient& study, const std::function<void(StudyRow row)>& visit) {
  tune::StudyQuestion question{.about = About::trials};
  for (;;) {
    const Json page = study.ask(question).value();
    const Json* trials = page.find("trials");
    if (trials == nullptr || trials->as_array() == nullptr) return;
    for (const Json& trial : *trials->as_array()) {
      StudyRow row{.number = whole_in(trial, "number")};
      if (const Json* fields = trial.find("row"); fields != nullptr && fields->is_object())
        row.json = *fields;
      visit(std::move(row));
    }
    const std::uint64_t next = whole_in(page, "next");
    if (next <= question.from) return;
    question.from = next;
  }
}

Exit list_studies(const StudyRequest& request) {
  need_folder(request.folder);
  std::error_code error;
  std::vector<std::string> paths;
  if (tune::StudyFolder::holds_study(request.folder)) paths.push_back(request.folder);
  for (fs::directory_iterator at(request.folder, error), end; !error && at != end;
       at.increment(error))
    if (tune::StudyFolder::holds_study(at->path().string())) paths.push_back(at->path().string());
  if (error)
    throw Failure{Exit::failed,
                  Error(Code::unavailable, request.folder + " cannot be read: " + error.message() +
                                               ": name a folder that this user may "
                                               "read")};
  std::sort(paths.begin(), paths.end());
  Json list = Json::array();
  std::vector<std::vector<std::string>> table{{"FOLDER", "STATE", "TRIALS", "BEST"}};
  for (const std::string& path : paths) {
    const Study study = look_at(path);
    if (request.json) list.push_back(document_of(study, false));
    const bool known = study.problem.empty();
    table.push_back({path, state_of(study), known ? std::to_string(study.count) : "–",
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
  const Study study = read_study(request.folder, true);
  if (request.json && request.follow) {
    follow_study(request.folder, study.events, true);
    return Exit::ok;
  }
  if (request.json) {
    print(document_of(study, true));
    return Exit::ok;
  }
  const std::string head = request.folder + ": " + text_in(study.meta, "name") + ", " +
                           std::to_string(study.count) + " trials, " +
                           std::to_string(study.events) + " events, best " + best_text(study) +
                           (study.owner || is_paused(study) ? ", " + state_of(study) : "");
  std::printf("%s\n", visible_text(head).c_str());
  print_rows(study.trials);
  if (request.follow) follow_study(request.folder, study.events, false);
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

/// The verbs `troupe tune add`, `stop`, `pause`, `resume`, `set` and `logs`: what a person does to a
/// study that runs, and what its trials have written.
#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/internal/study.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace troupe::cli {
namespace {

using StudyWhat = tune::StudyCommand::What;

tune::TypedValues typed_values(const std::vector<std::string>& words) {
  tune::TypedValues values;
  for (const std::string& word : words) {
    const auto pair = parse_pair(word);
    if (!pair)
      throw Failure{Exit::usage, Error(Code::invalid_argument,
                                       "'" + visible_text(word, 60) +
                                           "' is no name=value: write one like lr=1e-3")};
    const auto [at, is_new] = values.emplace(pair->first, pair->second);
    if (!is_new)
      throw Failure{Exit::usage, Error(Code::invalid_argument,
                                       visible_text(at->first, 60) + " has two values: give one")};
  }
  return values;
}

/// Returns the answer of the study's owner. What a person typed wrongly is bad usage.
Json commanded(const StudyRequest& request, const tune::StudyCommand& command) {
  need_folder(request.folder);
  auto study = tune::StudyClient::open(request.folder).value();
  auto answer = study.command(command);
  if (!answer && answer.error().code() == Code::invalid_argument)
    throw Failure{Exit::usage, answer.error()};
  Json json = std::move(answer).value();
  if (request.json) {
    json["folder"] = request.folder;
    print(json);
  }
  return json;
}

std::string words_of_values(const Json& answer, std::string_view field) {
  const Json* values = answer.find(field);
  std::string words;
  if (values != nullptr && values->as_object() != nullptr)
    for (const Json::Field& value : *values->as_object())
      words += " " + value.name + "=" + text_in(*values, value.name);
  return visible_text(words);
}

}  // namespace

Exit add_point(const StudyRequest& request) {
  const Json answer =
      commanded(request, {.what = StudyWhat::add, .values = typed_values(request.values)});
  if (!request.json)
    std::printf("added%s; %s trials are planned\n", words_of_values(answer, "added").c_str(),
                visible_text(text_in(answer, "planned")).c_str());
  return Exit::ok;
}

Exit stop_trial(const StudyRequest& request) {
  const Json answer = commanded(request, {.what = StudyWhat::stop, .trial = request.trial});
  if (!request.json)
    std::printf("trial %d is told to end; its state is %s\n", request.trial,
                visible_text(text_in(answer, "state")).c_str());
  return Exit::ok;
}

Exit pause_study(const StudyRequest& request, bool pause) {
  const Json answer = commanded(
      request, {.what = pause ? StudyWhat::pause : StudyWhat::resume, .trial = request.trial});
  if (request.json) return Exit::ok;
  const std::string who =
      request.trial < 0 ? "the study" : "trial " + std::to_string(request.trial);
  if (pause)
    std::printf("%s is paused: no attempt starts, and those that run stop at their next report\n",
                who.c_str());
  else
    std::printf("%s goes on\n", who.c_str());
  return Exit::ok;
}

Exit set_options(const StudyRequest& request) {
  const Json answer =
      commanded(request, {.what = StudyWhat::set, .values = typed_values(request.values)});
  if (!request.json) std::printf("set%s\n", words_of_values(answer, "set").c_str());
  return Exit::ok;
}

Exit trial_logs(const StudyRequest& request) {
  need_folder(request.folder);
  const std::string number = std::to_string(request.trial);
  const std::string path = request.folder + "/logs/trial-" + number + ".txt";
  std::error_code error;
  std::ifstream in;
  // A pipe in its place would block the opening.
  if (std::filesystem::is_regular_file(path, error)) in.open(path, std::ios::binary);
  if (!in.is_open())
    throw Failure{Exit::failed,
                  Error(Code::unavailable,
                        request.folder + " has no lines of trial " + number +
                            ": there is no such trial, it has written nothing, or newer trials' "
                            "lines took their place; `troupe tune show` lists the trials")};
  Json lines = Json::array();
  for (std::string line; std::getline(in, line) && std::ferror(stdout) == 0;) {
    if (request.json)
      lines.push_back(line);
    else
      std::printf("%s\n", escaped_text(line).c_str());
  }
  if (request.json)
    print({{"folder", request.folder}, {"trial", request.trial}, {"lines", std::move(lines)}});
  return Exit::ok;
}

}  // namespace troupe::cli

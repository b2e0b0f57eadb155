#include "troupe/tune/study/study_protocol.hpp"

#include "troupe/runtime/base/visible_text.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace troupe::tune {
namespace {

constexpr std::array<std::string_view, 4> kAbout = {"state", "trial", "trials", "events"};
constexpr std::array<std::string_view, 5> kWhat = {"add", "stop", "set", "pause", "resume"};
constexpr std::size_t kMostValues = 1000;
constexpr std::size_t kShownWord = 40;  ///< the most characters of a word that an error repeats

Error bad_request(const std::string& why) {
  return Error(Code::invalid_argument, "tune: the request " + why);
}

/// Returns the place of a field's text in the list of what is known; none for another value.
template <std::size_t N>
std::optional<std::size_t> place_in(const std::array<std::string_view, N>& known,
                                    const Json& field) {
  const std::string* text = field.as_text();
  if (text == nullptr) return std::nullopt;
  const auto found = std::find(known.begin(), known.end(), *text);
  if (found == known.end()) return std::nullopt;
  return static_cast<std::size_t>(found - known.begin());
}

template <std::size_t N>
Error unknown(const char* field, const Json& value, const std::array<std::string_view, N>& known) {
  std::string names;
  for (const std::string_view name : known)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return bad_request(std::string("has \"") + field + "\": " +
                     visible_text(value.dump(), kShownWord) + ", which is none of " + names);
}

Result<StudyCall> read_question(const Json& json, const Json& about) {
  const auto place = place_in(kAbout, about);
  if (!place) return unknown("ask", about, kAbout);
  StudyQuestion question{.about = static_cast<StudyQuestion::About>(*place)};
  if (const Json* from = json.find("from")) {
    const auto number = from->as_whole<std::uint64_t>();
    if (!number) return bad_request("has a \"from\" that is no number from 0 on");
    question.from = *number;
  }
  if (const Json* most = json.find("most")) {
    const auto number = most->as_whole<std::uint32_t>();
    if (!number || *number == 0) return bad_request("has a \"most\" that is no number from 1 on");
    question.most = std::min(*number, StudyQuestion::kMost);
  }
  return StudyCall(question);
}

/// Whether a trial belongs to the command. stop needs one.
bool is_on_a_trial(StudyCommand::What what) {
  return what == StudyCommand::What::stop || what == StudyCommand::What::pause ||
         what == StudyCommand::What::resume;
}

Result<StudyCall> read_command(const Json& json, const Json& what) {
  const auto place = place_in(kWhat, what);
  if (!place) return unknown("do", what, kWhat);
  StudyCommand command{.what = static_cast<StudyCommand::What>(*place)};
  if (is_on_a_trial(command.what)) {
    const Json* trial = json.find("trial");
    if (trial == nullptr && command.what != StudyCommand::What::stop)
      return StudyCall(std::move(command));
    const auto number = trial != nullptr ? trial->as_whole<int>() : std::nullopt;
    if (!number || *number < 0) return bad_request("names no trial: \"trial\" is its number");
    command.trial = *number;
    return StudyCall(std::move(command));
  }
  const Json* values = json.find("values");
  const Json::Object* fields = values != nullptr ? values->as_object() : nullptr;
  if (fields == nullptr) return bad_request("has no \"values\", an object of texts by name");
  if (fields->size() > kMostValues)
    return bad_request("has more than " + std::to_string(kMostValues) + " values");
  for (const Json::Field& field : *fields) {
    const std::string* text = field.value.as_text();
    if (text == nullptr && !field.value.as_number() && field.value.as_bool() == nullptr)
      return bad_request("has a value that is neither text nor number: " +
                         visible_text(field.name, kShownWord));
    command.values[field.name] = text != nullptr ? *text : field.value.dump();
  }
  return StudyCall(std::move(command));
}

Code code_named(std::string_view name) {
  constexpr auto kLast = static_cast<std::uint16_t>(Code::worker_died);
  for (std::uint16_t at = 0; at <= kLast; ++at)
    if (name_of(static_cast<Code>(at)) == name) return static_cast<Code>(at);
  return Code::internal;
}

}  // namespace

std::string line_of(const StudyCall& call) {
  Json json = Json::object();
  if (const auto* question = std::get_if<StudyQuestion>(&call)) {
    json["ask"] = kAbout[static_cast<std::size_t>(question->about)];
    if (question->about != StudyQuestion::About::state) json["from"] = question->from;
    json["most"] = question->most;
  } else if (const auto* command = std::get_if<StudyCommand>(&call)) {
    json["do"] = kWhat[static_cast<std::size_t>(command->what)];
    if (is_on_a_trial(command->what)) {
      if (command->trial >= 0) json["trial"] = command->trial;
    } else {
      Json& values = json["values"] = Json::object();
      for (const auto& [name, text] : command->values) values[name] = text;
    }
  }
  return json.dump();
}

std::string answer_line(const Json& answer) {
  return Json{{"answer", answer}}.dump();
}

std::string error_line(const Error& error) {
  Json json = Json::object();
  json["error"] = Json{{"code", name_of(error.code())}, {"message", error.message()}};
  return json.dump();
}

Result<StudyCall> read_call(std::string_view line) {
  const auto json = Json::parse(line);
  if (!json || !json->is_object()) return bad_request("is no JSON object");
  const Json *ask = json->find("ask"), *act = json->find("do");
  if ((ask == nullptr) == (act == nullptr)) return bad_request("needs either \"ask\" or \"do\"");
  return ask != nullptr ? read_question(*json, *ask) : read_command(*json, *act);
}

Result<Json> read_answer(std::string_view line) {
  auto json = Json::parse(line);
  const Error damaged(Code::invalid_argument, "tune: the study's owner gave no answer in JSON");
  if (!json || !json->is_object()) return damaged;
  if (const Json* answer = json->find("answer")) return *answer;
  const Json* error = json->find("error");
  const Json* code = error != nullptr ? error->find("code") : nullptr;
  const Json* message = error != nullptr ? error->find("message") : nullptr;
  if (code == nullptr || message == nullptr) return damaged;
  if (code->as_text() == nullptr || message->as_text() == nullptr) return damaged;
  return Error(code_named(*code->as_text()), *message->as_text());
}

bool LineCutter::add(std::string_view bytes) {
  if (too_long_) return false;
  bytes_ += bytes;
  looked_ = std::min(bytes_.find('\n', looked_), bytes_.size());
  too_long_ = looked_ > most_;
  return !too_long_;
}

std::optional<std::string> LineCutter::next() {
  const std::size_t end = bytes_.find('\n', looked_);
  if (too_long_ || end == std::string::npos) return std::nullopt;
  if (end > most_) {
    too_long_ = true;
    return std::nullopt;
  }
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  looked_ = 0;
  return line;
}

}  // namespace troupe::tune

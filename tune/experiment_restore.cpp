#include "troupe/tune/internal/event_text.hpp"
#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

constexpr int kVersion = 3;

std::string_view kind_of(const Domain& domain) {
  static constexpr std::string_view kNames[] = {"real", "integer", "normal", "choice"};
  return kNames[static_cast<std::size_t>(domain.kind)];
}

std::string text_of(const Json& header, const char* name) {
  const Json* found = header.find(name);
  if (found == nullptr) return "nothing";
  const std::string* text = found->as_text();
  return text != nullptr ? *text : json_line(*found);
}

/// Names the first of these fields that differs, with both values. Empty: all are equal.
std::string difference(const Json& theirs, const Json& ours,
                       std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string then = text_of(theirs, name);
    const std::string now = text_of(ours, name);
    if (then == now) continue;
    std::string text = "its ";
    text.append(name).append(" is ").append(then).append(", and that of this call is ").append(now);
    return text + ": give the former, or take another folder";
  }
  return {};
}

/// Compares names and kinds of the parameters. Their ranges and options may change.
std::string other_parameters(const Json& theirs, const SearchSpace& space) {
  const Json* list = theirs.find("space");
  const Json::Array* all = list == nullptr ? nullptr : list->as_array();
  if (all == nullptr) return "it names no parameters";
  for (const Json& p : *all) {
    const std::string name = text_of(p, "name");
    const auto same = std::find_if(space.parameters.begin(), space.parameters.end(),
                                   [&](const Parameter& mine) { return mine.name == name; });
    if (same == space.parameters.end())
      return "its space has a parameter " + name + ", which that of this call lacks";
    if (kind_of(same->domain) != text_of(p, "kind"))
      return "its parameter " + name + " is " + text_of(p, "domain") +
             ", and that of this call is " + show(same->domain) + ", of another type";
  }
  if (all->size() == space.size()) return {};
  return "its space has " + std::to_string(all->size()) + " parameters, and that of this call " +
         std::to_string(space.size());
}

Settings settings_in(const Json& header) {
  Settings settings;
  const Json* options = header.find("options");
  const Json::Object* fields = options == nullptr ? nullptr : options->as_object();
  if (fields == nullptr) return settings;
  for (const auto& [name, value] : *fields)
    settings[name] = value.is_null() ? std::nan("") : value.as_number().value_or(0);
  return settings;
}

Error bad(std::size_t line, const std::string& why) {
  return {Code::invalid_argument,
          "the experiment's log, line " + std::to_string(line) + ": " + why};
}

}  // namespace

/// Describes the experiment. After a restart this is the first description: the events follow it.
std::string Experiment::Core::header() const {
  if (const auto former = Json::parse(described); former) {
    Json out = Json::object();
    for (const Json::Field& field : former->is_object() ? *former->as_object() : Json::Object())
      if (field.name != "paused") out[field.name] = field.value;
    if (board.paused) out["paused"] = true;
    if (!build.empty()) out["build"] = valid_utf8(build);
    if (mixed) out["mixed"] = true;
    return json_line(out);
  }
  Json out;
  out["event"] = "experiment";
  out["version"] = kVersion;
  out["name"] = valid_utf8(board.name);
  out["metric"] = valid_utf8(board.metric);
  out["goal"] = options.goal.larger() ? "maximize" : "minimize";
  Json& parameters = out["space"] = Json::array();
  for (const Parameter& p : board.space.parameters)
    parameters.push_back(
        {{"name", p.name}, {"kind", kind_of(p.domain)}, {"domain", valid_utf8(show(p.domain))}});
  out["scheduler"] = board.scheduler;
  out["searcher"] = board.searcher;
  out["seed"] = options.seed;
  out["durable"] = durable;
  if (board.paused) out["paused"] = true;
  if (!build.empty()) out["build"] = valid_utf8(build);
  Json& settings = out["options"] = Json::object();
  for (const auto& [name, value] : first_settings) settings[name] = json_number(value);
  return json_line(out);
}

std::string Experiment::Core::why_not(const std::string& header_line) const {
  const auto theirs = Json::parse(header_line);
  const auto ours = Json::parse(header());
  if (!theirs || !ours) return "it is no description of an experiment";
  const std::string version = text_of(*theirs, "version");
  if (version != std::to_string(kVersion))
    return "it has version " + version + " of the log, and this troupe continues version " +
           std::to_string(kVersion) + " alone: take another folder";
  const std::string other = difference(*theirs, *ours, {"goal", "scheduler", "seed", "metric"});
  const std::string why = other.empty() ? other_parameters(*theirs, board.space) : other;
  return why.empty() ? why : "it describes another experiment: " + why;
}

Result<Experiment> Experiment::restore(SearchSpace space, ExperimentOptions options,
                                       const NextLine& next) {
  std::optional<std::string> first = next();
  Experiment fresh(space, options);
  if (!first) return fresh;
  const auto described = Json::parse(*first);
  if (!described) {
    constexpr std::string_view kBegin = R"({"event":"experiment",)";
    const bool ours = kBegin.starts_with(*first) || first->starts_with(kBegin);
    if (ours && !next()) return fresh;  // torn by a crash
    return bad(1, "it is no description of an experiment");
  }
  const std::string why = fresh.core_->why_not(*first);
  if (!why.empty()) return bad(1, why);
  // The replay has the options of the past; interrupted() then sets those of this call.
  const Settings asked = settings_of(options);
  adopt(settings_in(*described), options);
  Experiment experiment(std::move(space), std::move(options));
  Core& core = *experiment.core_;
  core.header_due = false;
  if (const Json* stored = described->find("durable"))
    core.durable = stored->as_bool() != nullptr && *stored->as_bool();
  if (const Json* build = described->find("build"))
    if (const std::string* text = build->as_text()) core.build = *text;
  const auto ours = Json::parse(core.header());
  core.same_space = ours && text_of(*ours, "space") == text_of(*described, "space") &&
                    described->find("mixed") == nullptr;
  core.answers_.points_of_others(text_of(*described, "searcher") != core.board.searcher);
  if (auto failure = core.replay(next)) return *failure;
  core.answers_.points_of_others(false);
  core.described = *first;
  core.mixed = !core.same_space;
  core.new_settings = changed(core.program, asked);
  if (core.new_settings.count("trials") > 0 &&
      std::holds_alternative<Pbt>(core.options.scheduler)) {
    return bad(1, "it has a population of " + std::to_string(core.options.trials) +
                      " trials, and this call wants " +
                      std::to_string(static_cast<int>(asked.at("trials"))) +
                      ": the size of a population stays");
  }
  return experiment;
}

Result<Experiment> Experiment::restore(SearchSpace space, ExperimentOptions options,
                                       std::span<const std::string> lines) {
  std::size_t i = 0;
  return restore(std::move(space), std::move(options), [&]() -> std::optional<std::string> {
    return i < lines.size() ? std::optional(lines[i++]) : std::nullopt;
  });
}

/// Applies an input, or compares a consequence: text by text, or if the space has changed by its
/// kind alone.
std::optional<Error> Experiment::Core::replay_line(const std::string& text, std::size_t number,
                                                   bool last, bool& torn) {
  const auto differs = [&](const Event& event) {
    if (!same_space)
      return text.find("\"event\":\"" + std::string(name_of(event.kind)) + "\"") ==
             std::string::npos;
    due.clear();
    event_text::append(due, event, board.space);
    return due != text;
  };
  if (expected < log.size()) {
    if (differs(log[expected])) {
      due = to_json(log[expected], board.space);
      torn = last && due.starts_with(text);
      if (torn) return std::nullopt;
      return bad(number, "replay gives " + due + ", the log says " + text);
    }
    ++expected;
    return std::nullopt;
  }
  auto event = event_from_json(text, board.space);
  torn = !event && last;
  if (torn) return std::nullopt;
  if (!event) return bad(number, event.error().message());
  if (!is_input(event->kind)) return bad(number, "nothing before it leads to " + text);
  if (event->micros < now) return bad(number, "time runs backwards");
  log.clear();
  batch = {};
  replays = true;
  apply(std::move(*event), true);
  replays = false;
  expected = 1;
  if (log.empty()) return bad(number, "it has no effect: " + text);
  if (!answers_.fits()) return bad(number, "its answers do not fit: " + text);
  if (differs(log[0])) return bad(number, "replay reads it as " + to_json(log[0], board.space));
  return std::nullopt;
}

std::optional<Error> Experiment::Core::replay(const NextLine& next) {
  std::size_t number = 1;  // of the header
  std::optional<std::string> line = next();
  while (line) {
    const std::string text = std::move(*line);
    line = next();
    bool torn = false;
    if (auto failure = replay_line(text, number + 1, !line, torn)) return failure;
    if (torn) break;
    ++number;
  }
  log.erase(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(expected));
  expected = 0;
  next_event = number;
  commands.clear();
  batch = {};
  touched_.clear();
  return std::nullopt;
}

Result<void> Experiment::follow(const std::string& line) {
  Core& core = *core_;
  bool torn = false;
  auto failure = core.replay_line(line, core.next_event + 1, false, torn);
  core.commands.clear();
  if (failure) return *failure;
  ++core.next_event;
  return {};
}

}  // namespace troupe::tune

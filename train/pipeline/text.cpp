#include "troupe/train/pipeline/text.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/pipeline/internal/places.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace troupe::train {
namespace {

using internal::reject;

constexpr std::array<std::string_view, 8> kNames = {"F",     "B",     "I",     "W",
                                                    "SendF", "RecvF", "SendB", "RecvB"};
constexpr std::string_view kBlanks = " \t\r";
constexpr int kMostNumber = 1 << 20;
constexpr int kMostStages = 1024;

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Removes a number from the beginning of the text and returns it; -1 when there is none up to
/// kMostNumber.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !is_digit(text.front()) || number > kMostNumber) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool parse_action(std::string_view word, Action& action) {
  action.stage = take_number(word);
  const std::string_view name = word.substr(0, word.find_first_of("0123456789"));
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (action.stage < 0 || found == kNames.end()) return false;
  action.op = static_cast<Action::Op>(found - kNames.begin());
  word.remove_prefix(name.size());
  action.micro = take_number(word);
  return action.micro >= 0 && word.empty();
}

/// Parses one line of a file.
class Line {
 public:
  Line(std::string_view text, int number)
      : text_(text.substr(0, text.find('#'))), number_(number) {}

  std::vector<Action> actions() {
    std::vector<Action> all;
    skip_blanks();
    while (at_ < text_.size()) {
      all.push_back(action());
      separator();
    }
    return all;
  }

 private:
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }

  Action action() {
    const std::size_t end = std::min(text_.find_first_of(" \t\r,", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    Action action;
    if (word.empty()) refuse("there is a comma, but no action before it: remove it");
    if (!parse_action(word, action)) {
      constexpr std::size_t kShown = 40;
      refuse("\"" + std::string(word.substr(0, kShown)) +
             "\" is no action: write a stage, one of F B I W SendF RecvF SendB RecvB and a "
             "micro-batch, as in 2F0, with numbers up to 2^20");
    }
    at_ = end;
    return action;
  }

  void separator() {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != ',') return;
    ++at_;
    skip_blanks();
    if (at_ == text_.size()) refuse("the line ends with a comma: remove it, or add an action");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    reject("schedule, line " + std::to_string(number_) + ", column " + std::to_string(at_ + 1) +
           ": " + why);
  }

  std::string_view text_;
  int number_;
  std::size_t at_ = 0;
};

[[noreturn]] void refuse_choice(std::string_view name) {
  reject("layout: schedule is \"" + std::string(name) +
         "\"; choose gpipe, 1f1b, interleaved, interleaved:V with V stages a rank (2 to 1024), or "
         "file:PATH");
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  reject("schedule: the file " + path + " " + why);
}

Schedule from_file(const ScheduleChoice& choice) {
  Schedule schedule = read_schedule(choice.path);
  return internal::has_transfers(schedule) ? schedule : lower(schedule);
}

}  // namespace

std::string text_of(const Action& action) {
  return std::to_string(action.stage).append(kNames[action.op]) + std::to_string(action.micro);
}

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : schedule) {
    for (std::size_t i = 0; i < actions.size(); ++i)
      text.append(i == 0 ? "" : ", ").append(text_of(actions[i]));
    text += '\n';
  }
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<Action> actions = Line(text.substr(0, end), number).actions();
    if (!actions.empty()) schedule.push_back(std::move(actions));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  constexpr std::streamoff kMostBytes = 64 << 20;
  constexpr const char* kUnreadable =
      "cannot be read: give the path of a file that every rank can read";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse_file(path, kUnreadable);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0) refuse_file(path, kUnreadable);
  if (size > kMostBytes) refuse_file(path, "has more than 64 MiB: give one of a schedule");
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!file.seekg(0) || !file.read(text.data(), size)) refuse_file(path, kUnreadable);
  return parse_schedule(text);
}

ScheduleChoice parse_schedule_choice(std::string_view name) {
  constexpr std::string_view kFile = "file:", kInterleaved = "interleaved:";
  if (name == "gpipe") return {.kind = ScheduleKind::gpipe};
  if (name == "1f1b") return {};
  if (name == "interleaved") return {.kind = ScheduleKind::interleaved, .v = 2};
  if (name.size() > kFile.size() && name.substr(0, kFile.size()) == kFile)
    return {.path = std::string(name.substr(kFile.size()))};
  if (name.substr(0, kInterleaved.size()) != kInterleaved) refuse_choice(name);
  std::string_view number = name.substr(kInterleaved.size());
  const int v = take_number(number);
  if (v < 2 || v > kMostStages || !number.empty()) refuse_choice(name);
  return {.kind = ScheduleKind::interleaved, .v = v};
}

LayoutSchedule schedule_of(const Layout& layout) {
  const ScheduleChoice choice = parse_schedule_choice(layout.schedule);
  if (choice.path.empty())
    return {generate(choice.kind, layout.pp, layout.micro, choice.v), choice.v};
  LayoutSchedule chosen{from_file(choice)};
  chosen.v = internal::shape_of(chosen.schedule).v;
  validate(chosen.schedule, layout.pp, layout.micro, chosen.v);
  return chosen;
}

}  // namespace troupe::train

/// What the owner of a study and the verbs of `troupe tune` say to each other: one JSON document a
/// line. A plain state machine.
///
///     {"ask":"trials","from":0,"most":500}            a question about rows
///     {"do":"add","values":{"lr":"1e-3"}}             a command to the experiment
///     {"answer":{…}}   {"error":{"code":"invalid_argument","message":"…"}}
///
/// A connection has one request at a time: the next one is read when its answer has been sent.
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/study/typed_values.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace troupe::tune {

/// What may be asked. state: the study as a whole. trial: the row number `from`. trials, events:
/// those from `from` on, at most `most`; the answer has `next` when there may be more.
struct StudyQuestion {
  enum class About : std::uint8_t { state, trial, trials, events };
  static constexpr std::uint32_t kMost = 1000;
  About about = About::state;
  std::uint64_t from = 0;
  std::uint32_t most = kMost;
  friend bool operator==(const StudyQuestion&, const StudyQuestion&) = default;
};

/// What the experiment is to do. add: try the point with these values. stop: end the trial. set:
/// change these options. pause, resume: hold the trial, or the study, and let it go on.
struct StudyCommand {
  enum class What : std::uint8_t { add, stop, set, pause, resume };
  What what = What::stop;
  int trial = -1;  ///< -1: the study
  TypedValues values = {};
  friend bool operator==(const StudyCommand&, const StudyCommand&) = default;
};

using StudyCall = std::variant<StudyQuestion, StudyCommand>;

/// Both ends write lines without the newline.
TROUPE_API std::string line_of(const StudyCall& call);
TROUPE_API std::string answer_line(const Json& answer);
TROUPE_API std::string error_line(const Error& error);
/// Reads a line of a client. Returns InvalidArgument, which says what is wrong, for any other text.
TROUPE_API Result<StudyCall> read_call(std::string_view line);
/// Reads a line of the owner: its answer, or its error. Returns InvalidArgument for any other text.
TROUPE_API Result<Json> read_answer(std::string_view line);

/// Cuts bytes that arrive into lines of a bounded length.
class TROUPE_API LineCutter {
 public:
  explicit LineCutter(std::size_t most) : most_(most) {}
  /// Takes bytes. Returns false, for good, when a line is longer than the bound.
  bool add(std::string_view bytes);
  /// Returns the next whole line, without its newline; nothing when none is there.
  std::optional<std::string> next();

 private:
  std::size_t most_;
  std::string bytes_;
  std::size_t looked_ = 0;  ///< bytes of the first line that have no newline
  bool too_long_ = false;
};

}  // namespace troupe::tune

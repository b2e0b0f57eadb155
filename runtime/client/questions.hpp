/// The questions of this process to its agent, of all kinds, until the threads that asked have
/// taken the answers. A plain state machine, driven by ClientEngine.
///
///     const auto number = questions.ask<wire::Located>();     // then send it with this number
///     questions.answer(message);                              // a message with an answer
///     if (questions.is_answered(number)) …                    // the predicate of the wait
///     std::optional<wire::Located> answer = questions.take<wire::Located>(number);
///
/// Invariants: QUESTION-1 Questions of all kinds have different numbers. Those of readers, which
/// travel without a number, take none from the others. QUESTION-2 An answer without a question of
/// its kind changes nothing: answer() returns false, and what the answer holds is the caller's.
/// QUESTION-3 An answer in several messages is there with its last one, and has the rows of all in
/// order. QUESTION-4 A question ends with take(), answered or not.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

namespace troupe::client {

class Questions {
 public:
  /// Answers NeedExtent. True: an extent was added.
  struct Extent {
    Result<bool> added = false;
  };
  /// Answers NeedReader. Null: the memory can be read.
  struct Reader {
    std::shared_ptr<const Error> failed;
  };

  /// Begins a question of the kind that an A answers. Returns its number.
  template <class A>
  std::uint64_t ask() {
    questions_.emplace(++last_, Question{A{}, false, {}});
    return last_;
  }
  /// Begins a question for a view of a segment or an extent. Returns a number for this process
  /// alone.
  std::uint64_t ask_reader(bool is_segment, std::uint64_t id);

  /// Handles a message that answers the question `message.request`. Returns whether it took what
  /// the message holds.
  template <class A>
  bool answer(A& message) {
    return answer(message.request, message);
  }
  template <class A>
  bool answer(std::uint64_t number, A& message) {
    const auto at = questions_.find(number);
    if (at == questions_.end()) return false;
    A* so_far = std::get_if<A>(&at->second.answer);
    if (so_far == nullptr) return false;
    at->second.is_answered = add(*so_far, message);
    return true;
  }
  /// Answers all questions for this view.
  void answer_readers(bool is_segment, std::uint64_t id, const Error* failed);
  /// Ends the wait for extents that have not come: the threads get this error.
  void refuse_extents(const Error& why);

  bool is_answered(std::uint64_t number) const { return questions_.at(number).is_answered; }
  /// Ends the question. Returns nullopt when it has no whole answer.
  template <class A>
  std::optional<A> take(std::uint64_t number) {
    const auto ended = questions_.extract(number);
    if (!ended.mapped().is_answered) return std::nullopt;
    return std::get<A>(std::move(ended.mapped().answer));
  }

 private:
  using Answer = std::variant<wire::FoundActor, wire::NamedObject, wire::Located, wire::Explained,
                              wire::Nodes, wire::NowAt, wire::Replicated, Extent, Reader>;
  struct Question {
    Answer answer;  ///< its type is the question's kind
    bool is_answered = false;
    std::pair<bool, std::uint64_t> view;  ///< of Reader: is it a segment, and which one
  };
  template <class A>
  static bool add(A& so_far, A& next) {
    so_far = std::move(next);
    return true;
  }
  static bool add(wire::Located& so_far, wire::Located& next);
  static bool add(wire::Nodes& so_far, wire::Nodes& next);

  std::map<std::uint64_t, Question> questions_;
  std::uint64_t last_ = 0;
  std::uint64_t last_reader_ = std::uint64_t{1} << 63;
};

}  // namespace troupe::client

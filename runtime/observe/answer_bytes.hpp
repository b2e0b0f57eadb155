/// The bytes of an answer, as processes and agents send it, and of what an agent tells a process with
/// a question.
///
///     Blob bytes = encode(selection.take());
///     Result<Answer> answer = decode_answer(bytes);
///     merge.add(std::move(*answer));    // checks the form of each row
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <map>
#include <optional>
#include <string>

namespace troupe::observe {

/// The most bytes of an answer, and of a Surroundings.
inline constexpr std::size_t kMaxAnswerBytes = 8 << 20, kMaxSurroundingsBytes = 12 * 1024;

/// Returns the bytes of the answer without `next`. Texts beyond kMaxTextBytes are cut, and so are
/// the last rows of an answer beyond kMaxAnswerBytes, with `more` set.
Blob encode(const Answer& answer);
/// Errors: invalid_argument for bytes that are no answer. The result takes at most 30 times the
/// memory of the bytes.
Result<Answer> decode_answer(BlobView bytes);

/// What an agent knows about the surroundings of a process and the process does not.
struct Surroundings {
  struct Worker {
    std::string name;      ///< like node-0/8185; of another node like node-1
    bool blocked = false;  ///< its thread waits inside its function; known of this node's alone
    bool is_here = false;  ///< on this node
  };
  std::string self;                        ///< the process, like node-0/8185
  std::map<ProcessIndex, Worker> workers;  ///< that have a channel to the process
  std::map<LeaseKey, std::string> whys;    ///< why its lease requests wait
};
/// Leaves out what is beyond kMaxSurroundingsBytes.
Blob encode(const Surroundings& surroundings);
Result<Surroundings> decode_surroundings(BlobView bytes);

}  // namespace troupe::observe

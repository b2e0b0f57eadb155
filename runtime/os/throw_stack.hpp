/// The stack of the last exception that this thread threw. The stack is gone by the time a task's
/// exception is caught, so it is recorded at the throw. Only threads with a NoteThrows record;
/// elsewhere a throw costs one more thread-local load.
///
///     NoteThrows noting;                 // a worker, around the user's function
///     … catch (...) { text = thrown_stack(); }
#pragma once

#include <string>

namespace troupe::os {

/// While an object of this class lives, the throws of its thread are recorded.
class NoteThrows {
 public:
  NoteThrows() noexcept;
  ~NoteThrows();
  NoteThrows(const NoteThrows&) = delete;
  NoteThrows& operator=(const NoteThrows&) = delete;
};

/// Returns the frames of the last recorded throw, innermost first, one a line: `function
/// (module+0xoffset)`. Names need the program to be linked with -rdynamic. Empty when none was
/// recorded.
std::string thrown_stack();

}  // namespace troupe::os

/// Where the last exception of this thread was thrown: the stack is gone by the time it is caught
/// at the edge of a task, so it is noted when it is thrown. Only in threads that ask for it;
/// elsewhere a throw costs one thread-local load.
///
///     NoteThrows noting;                 // a worker, around the user's function
///     … catch (...) { text = thrown_stack(); }
#pragma once

#include <string>

namespace troupe::os {

/// While it lives, throws of this thread are noted (about 2 us each).
class NoteThrows {
 public:
  NoteThrows() noexcept;
  ~NoteThrows();
  NoteThrows(const NoteThrows&) = delete;
  NoteThrows& operator=(const NoteThrows&) = delete;
};

/// Frames of the newest throw that was noted, innermost first, one a line: `function
/// (module+0xoffset)`; names need the program to be linked with -rdynamic. Empty when none was
/// noted.
std::string thrown_stack();

}  // namespace troupe::os

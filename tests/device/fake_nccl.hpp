// What tests ask of the library in NCCL's place, by dlsym("fake_nccl").
#pragma once

struct FakeNccl {
  /// Operations of these ranks (bits) do not begin, until others are named or they are aborted.
  void (*hold)(unsigned ranks);
  /// The next operation of this rank ends its communicator with this result.
  void (*fail)(int rank, int result);
  /// An abort does not return.
  void (*stick)(int yes);
  /// "alive" communicators now; since the start "aborted", "destroyed", "operations", and
  /// "violations": two threads in one communicator, or a call before the last one was ready.
  int (*count)(const char* what);
};

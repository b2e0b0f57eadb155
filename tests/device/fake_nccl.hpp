// Functions with which tests control the library in NCCL's place; found by dlsym("fake_nccl").
#pragma once

struct FakeNccl {
  /// Holds back the operations of these ranks (bits) until another call names other ranks, or
  /// they are aborted.
  void (*hold)(unsigned ranks);
  /// Makes the next operation of this rank end its communicator with this result.
  void (*fail)(int rank, int result);
  /// With 1, an abort does not return.
  void (*stick)(int yes);
  /// Returns a count. "alive": communicators now. Since the start: "aborted", "destroyed",
  /// "operations", and "violations" (two threads in one communicator, or a call before the last
  /// one was ready).
  int (*count)(const char* what);
};

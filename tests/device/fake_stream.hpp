// What stands for a cudaStream_t in tests: the queue of a HostDevice.
#pragma once

struct FakeStream {
  /// Runs f(arg) when all that the queue held has run.
  void (*enqueue)(FakeStream* self, void (*f)(void*), void* arg);
  /// Where the host reaches memory of the device.
  void* (*reach)(FakeStream* self, void* memory);
};

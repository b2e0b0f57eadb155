// The tests' cudaStream_t: the queue of a HostDevice.
#pragma once

struct FakeStream {
  /// Runs f(arg) when everything that the queue holds now has run.
  void (*enqueue)(FakeStream* self, void (*f)(void*), void* arg);
  /// Returns the address at which the host reaches memory of the device.
  void* (*reach)(FakeStream* self, void* memory);
};

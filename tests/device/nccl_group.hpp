// Groups of the NCCL back end in a process without NCCL and without a GPU. Ranks are threads; a
// library of the tests (fake_nccl.cpp) stands in for NCCL, and a HostDevice for the GPU.
#pragma once

#include "tests/device/fake_nccl.hpp"
#include "tests/device/host_device.hpp"
#include "tests/paths.hpp"
#include "troupe/actors/collective/nccl/internal/communicator.hpp"

#include <dlfcn.h>

#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::collective {

using Group = std::vector<std::unique_ptr<Communicator>>;

inline const nccl::Library& fake_nccl_library() {
  static const nccl::Library library = nccl::open_library({paths::fake_nccl_ranks()});
  return library;
}
/// Returns the functions that control the library.
inline const FakeNccl& fake_nccl() {
  void* handle = ::dlopen(fake_nccl_library().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  static const auto get = reinterpret_cast<const FakeNccl* (*)()>(::dlsym(handle, "fake_nccl"));
  return *get();
}

inline std::unique_ptr<Communicator> join_fake_nccl(
    std::unique_ptr<Communicator> host, const kernels::Device& device,
    Duration abort_within = std::chrono::seconds(10)) {
  return nccl::join(std::move(host), device, fake_nccl_library(), abort_within);
}

/// Makes the group's ranks a group over the library, with a device for each rank. Without
/// `devices` each rank gets a new device that takes memory of the host for its own. Throws what
/// the first rank throws.
inline Group over_fake_nccl(Group host, std::vector<kernels::HostDevice>* devices = nullptr) {
  Group group(host.size());
  std::vector<std::exception_ptr> errors(host.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < host.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        kernels::Device device = devices != nullptr
                                     ? (*devices)[rank].device()
                                     : kernels::HostDevice({.takes_all = true}).device();
        group[rank] = join_fake_nccl(std::move(host[rank]), device);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return group;
}

}  // namespace troupe::collective

/// The table of entry points of this process, and their identity across processes.
///
/// An entry is named by the build-id of its module and the offset of its thunk in it: the same in
/// every process that runs the same files. A name would not do: two files may each have their own
/// `static int f(int)`.
///
///     FunctionKey key = registry.key_of(callable);        // caller
///     const Callable* c = registry.find(key);             // worker; nullptr: of another build
#pragma once

#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <mutex>
#include <unordered_map>

namespace troupe::engine {

class Registry {
 public:
  static Registry& instance();
  void add(const detail::Callable* callable);
  /// About 20 ns after the first time. Any thread.
  wire::FunctionKey key_of(const detail::Callable* callable);
  /// Only addresses that are in the table are ever returned. Any thread.
  const detail::Callable* find(const wire::FunctionKey& key);

 private:
  struct Module {
    std::uint64_t id = 0;
    std::uintptr_t base = 0;
  };
  Module module_at(std::uintptr_t base);
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, const detail::Callable*> by_thunk_;
  std::unordered_map<const detail::Callable*, wire::FunctionKey> keys_;
  std::unordered_map<std::uintptr_t, Module> modules_;
};

/// Hex build-id of the executable, or a hash of its path and size when the linker wrote none.
std::string executable_build_id();

}  // namespace troupe::engine

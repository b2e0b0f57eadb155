/// The process's table of entry points, and the key that names an entry in every process.
///
/// The key is the build-id of the entry's module (a hash of its code if the linker wrote none) and
/// the offset of its thunk in that module. It is the same in every process that runs the same files.
/// A name would not do: two files may each have their own `static int f(int)`.
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
  /// Returns the key of the entry. Cheap after the first call for an entry. Any thread.
  wire::FunctionKey key_of(const detail::Callable* callable);
  /// Returns the entry with this key, or nullptr. It never returns an address that is not in the
  /// table, so a forged key cannot make the worker jump elsewhere. Any thread.
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

}  // namespace troupe::engine

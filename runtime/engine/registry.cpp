#include "troupe/runtime/engine/registry.hpp"

#include "troupe/runtime/base/build_id.hpp"
#include "troupe/runtime/engine/internal/module_contents.hpp"

#include <dlfcn.h>
#include <link.h>
#include <algorithm>

namespace troupe::engine {
namespace {

std::uint64_t fold(const unsigned char* bytes, std::size_t size) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  return hash == 0 ? 1 : hash;
}

struct ModuleSearch {
  std::uintptr_t base = 0;
  std::uint64_t id = 0;  ///< of the build-id, or of the contents of a module without one
};

int on_module(dl_phdr_info* info, std::size_t, void* closure) {
  auto& search = *static_cast<ModuleSearch*>(closure);
  std::uintptr_t lowest = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      lowest = std::min<std::uintptr_t>(lowest, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  lowest &= ~std::uintptr_t{4095};
  if (lowest != search.base) return 0;
  const auto id = build_id_of(*info);
  search.id = id.empty() ? internal::hash_of_contents(*info) : fold(id.data(), id.size());
  return 1;
}

}  // namespace

// A path would not do: another node runs a copy of the program from its cache, and the loader gives
// an executable no name. Memory is hashed, not the file, which may have been replaced since.
// AddressSanitizer guards the gaps between a program's constants, so nothing of it may look at these
// reads: neither its instrumentation nor its memcpy.
[[gnu::no_sanitize_address]] std::uint64_t internal::hash_of_contents(
    const dl_phdr_info& module) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // like FNV-1a, by words
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0 || (segment.p_flags & PF_W) != 0)
      continue;  // variables differ from process to process
    const auto* bytes = reinterpret_cast<const unsigned char*>(module.dlpi_addr + segment.p_vaddr);
    for (std::size_t at = 0; at < segment.p_filesz; at += sizeof(std::uint64_t)) {
      const std::size_t size = std::min(sizeof(std::uint64_t), segment.p_filesz - at);
      std::uint64_t word = 0;
      for (std::size_t n = 0; n < size; ++n) word |= std::uint64_t{bytes[at + n]} << (8 * n);
      hash = (hash ^ word) * 0x100000001b3ULL;
      hash ^= hash >> 32;  // a product carries upwards only
    }
  }
  return hash == 0 ? 1 : hash;
}

Registry& Registry::instance() {
  // Never deleted: users' static destructors may still need it.
  static Registry* registry = new Registry;
  return *registry;
}

void Registry::add(const detail::Callable* callable) {
  const std::lock_guard lock(mutex_);
  by_thunk_.emplace(reinterpret_cast<std::uintptr_t>(callable->thunk), callable);
}

Registry::Module Registry::module_at(std::uintptr_t base) {
  if (auto found = modules_.find(base); found != modules_.end()) return found->second;
  ModuleSearch search{.base = base};
  dl_iterate_phdr(&on_module, &search);
  const Module module{search.id, base};
  modules_.emplace(base, module);
  return module;
}

wire::FunctionKey Registry::key_of(const detail::Callable* callable) {
  const std::lock_guard lock(mutex_);
  if (auto found = keys_.find(callable); found != keys_.end()) return found->second;
  Dl_info info{};
  const auto address = reinterpret_cast<std::uintptr_t>(callable->thunk);
  TROUPE_ASSERT(dladdr(reinterpret_cast<void*>(address), &info) != 0,
                "a thunk lies in a loaded module");
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  const wire::FunctionKey key{module_at(base).id, address - base};
  by_thunk_.emplace(address, callable);
  keys_.emplace(callable, key);
  return key;
}

const detail::Callable* Registry::find(const wire::FunctionKey& key) {
  const std::lock_guard lock(mutex_);
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto& [base, module] : modules_) {
      if (module.id != key.module) continue;
      const auto entry = by_thunk_.find(base + key.offset);
      return entry == by_thunk_.end() ? nullptr : entry->second;
    }
    // No known module has this id: enter the module of each entry, then look once more.
    for (const auto& [thunk, callable] : by_thunk_) {
      Dl_info info{};
      if (dladdr(reinterpret_cast<void*>(thunk), &info) != 0)
        module_at(reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    }
  }
  return nullptr;
}

}  // namespace troupe::engine

namespace troupe::detail {
void register_callable(const Callable* callable) {
  engine::Registry::instance().add(callable);
}
}  // namespace troupe::detail

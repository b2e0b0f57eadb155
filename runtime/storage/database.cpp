#include "troupe/runtime/storage/database.hpp"

#include <dlfcn.h>

namespace troupe::storage {
namespace {

/// Returns the folder of the file (library or program) that holds this function.
std::string folder_of_this() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&folder_of_this), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string here = info.dli_fname;
  return here.substr(0, here.rfind('/') + 1);
}

Result<const Door*> open_plugin() {
  const std::string folder = folder_of_this();
  std::string why;
  for (const std::string& path :
       {folder + kPlugin, folder + "../lib/" + kPlugin, std::string(kPlugin)}) {
    void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      if (const char* error = ::dlerror(); why.empty() && error != nullptr) why = error;
      continue;
    }
    const auto door = reinterpret_cast<const Door* (*)()>(::dlsym(plugin, kDoor));
    if (door != nullptr) return door();
    why = path + " has no " + kDoor + ": it is of another version";
  }
  return Error(Code::unavailable,
               "a data folder needs RocksDB, and its plug-in cannot be opened (" + why +
                   "): install it beside libtroupe.so, or run without a data folder");
}

}  // namespace

Result<const Door*> door() {
  static const Result<const Door*> found = open_plugin();
  return found;
}

}  // namespace troupe::storage

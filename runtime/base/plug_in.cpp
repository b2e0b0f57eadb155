#include "troupe/runtime/base/plug_in.hpp"

#include <dlfcn.h>

#include <vector>

namespace troupe {
namespace {

/// Returns the folder of the file (library or program) that holds this function. Empty where the
/// loader has only a name: a program that was found through PATH.
std::string folder_of_this() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&folder_of_this), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string here = info.dli_fname;
  return here.substr(0, here.rfind('/') + 1);
}

}  // namespace

Result<void*> find_in_plug_in(const std::string& file, const char* symbol) {
  std::vector<std::string> paths;
  if (const std::string folder = folder_of_this(); !folder.empty()) {
    paths.push_back(folder + file);
    std::string& beside = paths.emplace_back(folder + "../lib/");
    beside += file;
  }
  paths.push_back(file);
  std::string why;
  const auto add = [&why](const std::string& reason) { why += (why.empty() ? "" : "; ") + reason; };
  for (const std::string& path : paths) {
    void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      const char* error = ::dlerror();
      add(error == nullptr ? path : error);
      continue;
    }
    if (void* const found = ::dlsym(plugin, symbol); found != nullptr) return found;
    add(path + " has no " + symbol + ": it is of another version");
  }
  return Error(Code::unavailable, why);
}

}  // namespace troupe

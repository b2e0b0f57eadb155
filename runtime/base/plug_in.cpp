#include "troupe/runtime/base/plug_in.hpp"

#include <dlfcn.h>

namespace troupe {
namespace {

/// Returns the folder of the file (library or program) that holds this function.
std::string folder_of_this() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&folder_of_this), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string here = info.dli_fname;
  return here.substr(0, here.rfind('/') + 1);
}

}  // namespace

Result<void*> find_in_plug_in(const std::string& file, const char* symbol) {
  const std::string folder = folder_of_this();
  std::string why;
  std::string beside = folder + "../lib/";
  beside += file;
  for (const std::string& path : {folder + file, beside, file}) {
    void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      if (const char* error = ::dlerror(); why.empty() && error != nullptr) why = error;
      continue;
    }
    if (void* const found = ::dlsym(plugin, symbol); found != nullptr) return found;
    why = path + " has no " + symbol + ": it is of another version";
  }
  return Error(Code::unavailable, why);
}

}  // namespace troupe

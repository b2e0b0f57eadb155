// A shared library of the program's own. It returns the path from which it was loaded.
#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) const char* own_library_path() {
  static Dl_info info;
  return dladdr(reinterpret_cast<void*>(&own_library_path), &info) != 0 ? info.dli_fname : "";
}

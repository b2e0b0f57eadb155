// A shared object of the program's own: it says where it was loaded from.
#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) const char* own_library_path() {
  static Dl_info info;
  return dladdr(reinterpret_cast<void*>(&own_library_path), &info) != 0 ? info.dli_fname : "";
}

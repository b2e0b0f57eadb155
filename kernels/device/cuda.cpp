#include "troupe/kernels/device/cuda.hpp"

#include "troupe/runtime/base/environment.hpp"

#include <dlfcn.h>

#include <vector>

namespace troupe::kernels {
namespace {

constexpr const char* kPlugin = "libtroupe_cuda.so";

struct Found {
  const troupe_cuda_table* table = nullptr;
  std::string status;
};

/// Counts the devices that the driver knows; -1 without a driver. The driver's library stays open
/// for the plug-in.
int driver_devices() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return -1;
  auto initialise = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (initialise == nullptr || count == nullptr || initialise(0) != 0 || count(&devices) != 0)
    return -1;
  return devices;
}

/// Returns the plug-in's path in the folder of the library that holds this function, or an empty
/// text.
std::string beside_this() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&beside_this), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string here = info.dli_fname;
  const std::size_t slash = here.rfind('/');
  return slash == std::string::npos ? std::string() : here.substr(0, slash + 1) + kPlugin;
}

void* open_plugin(std::string& why) {
  std::vector<std::string> paths;
  const std::string named = Environment().text("TROUPE_CUDA_PLUGIN").value_or("");
  if (named.empty())
    paths = {beside_this(), kPlugin};
  else
    paths = {named};
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* error = ::dlerror();
    why += (why.empty() ? "" : "; ") + std::string(error == nullptr ? "unknown error" : error);
  }
  return nullptr;
}

Found look() {
  const int devices = driver_devices();
  if (devices < 0) return {nullptr, "no CUDA driver (libcuda.so.1)"};
  if (devices == 0) return {nullptr, "a CUDA driver, but no device"};
  std::string why;
  void* handle = open_plugin(why);
  if (handle == nullptr) return {nullptr, "a CUDA device, but no plug-in: " + why};
  auto get =
      reinterpret_cast<decltype(&troupe_cuda_get_table)>(::dlsym(handle, "troupe_cuda_get_table"));
  const troupe_cuda_table* table = get == nullptr ? nullptr : get(TROUPE_CUDA_TABLE_VERSION);
  if (table == nullptr || table->size != sizeof *table ||
      table->operations != troupe_cuda_operations_size())
    return {nullptr, "the CUDA plug-in belongs to another version"};
  const int usable = table->device_count();
  if (usable <= 0) return {nullptr, "the CUDA runtime finds no usable device"};
  return {table, std::to_string(usable) + " CUDA device(s)"};
}

const Found& found() {
  static const Found result = look();
  return result;
}

}  // namespace

const troupe_cuda_table* cuda_table() {
  return found().table;
}
std::string cuda_status() {
  return found().status;
}

}  // namespace troupe::kernels

#include "tests/gpu/cuda_runtime.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

namespace troupe::gpu {
namespace {

template <class F>
void load(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(handle, name));
  if (function == nullptr) throw std::runtime_error(std::string("libcudart has no ") + name);
}

std::vector<std::string> places() {
  std::vector<std::string> folders{""};
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(name)) folders.push_back(std::string(root) + "/lib64/");
  folders.emplace_back("/usr/local/cuda/lib64/");
  std::vector<std::string> paths;
  for (const std::string& folder : folders)
    for (const char* file : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"})
      paths.push_back(folder + file);
  return paths;
}

}  // namespace

void CudaRuntime::check(int result, const char* call) const {
  if (result != 0) throw std::runtime_error(std::string(call) + ": " + error_string(result));
}

CudaRuntime open_cuda_runtime() {
  CudaRuntime cuda;
  void* handle = nullptr;
  for (const std::string& path : places()) {
    cuda.path = path;
    if ((handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) != nullptr) break;
  }
  if (handle == nullptr)
    throw std::runtime_error("no libcudart where the loader looks, nor below CUDA_HOME");
  load(handle, "cudaGetDeviceCount", cuda.device_count);
  load(handle, "cudaSetDevice", cuda.set_device);
  load(handle, "cudaMalloc", cuda.allocate);
  load(handle, "cudaFree", cuda.release);
  load(handle, "cudaMemcpy", cuda.copy);
  load(handle, "cudaStreamCreate", cuda.create_stream);
  load(handle, "cudaStreamQuery", cuda.query);
  load(handle, "cudaDeviceSynchronize", cuda.synchronize);
  load(handle, "cudaRuntimeGetVersion", cuda.runtime_version);
  load(handle, "cudaDriverGetVersion", cuda.driver_version);
  load(handle, "cudaGetErrorString", cuda.error_string);
  return cuda;
}

std::string card_name() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return "";
  auto initialise = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  auto name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  int device = 0;
  char text[128] = {};
  if (initialise == nullptr || get == nullptr || name == nullptr || initialise(0) != 0 ||
      get(&device, 0) != 0 || name(text, sizeof text - 1, device) != 0)
    return "";
  return text;
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace troupe::gpu

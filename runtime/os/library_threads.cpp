#include "troupe/runtime/os/library_threads.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace troupe::os {
namespace {

struct Library {
  const char* file;      ///< as the loader knows it; null: whatever the program has linked
  const char* function;  ///< void (int)
  const char* variable;  ///< by which a user chooses
};

constexpr Library kLibraries[] = {
    {nullptr, "omp_set_num_threads", "OMP_NUM_THREADS"},
    {"libgomp.so.1", "omp_set_num_threads", "OMP_NUM_THREADS"},
    {"libiomp5.so", "omp_set_num_threads", "OMP_NUM_THREADS"},
    {"libomp.so.5", "omp_set_num_threads", "OMP_NUM_THREADS"},
    {nullptr, "openblas_set_num_threads", "OPENBLAS_NUM_THREADS"},
    {"libopenblas.so.0", "openblas_set_num_threads", "OPENBLAS_NUM_THREADS"},
    {nullptr, "MKL_Set_Num_Threads", "MKL_NUM_THREADS"},
    {"libmkl_rt.so.2", "MKL_Set_Num_Threads", "MKL_NUM_THREADS"},
};

bool is_set(const char* variable) noexcept {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

void LibraryThreads::want(double cpus) noexcept {
  constexpr double kMost = 4096;
  const int threads = cpus > 0 ? static_cast<int>(std::floor(std::clamp(cpus, 1.0, kMost))) : 0;
  if (threads > 0) wanted_.store(threads, std::memory_order_relaxed);
}

void LibraryThreads::set(int threads) noexcept {
  applied_ = threads;
  for (const Library& library : kLibraries) {
    // OMP_NUM_THREADS counts for the BLAS libraries too.
    if (is_set(library.variable) || is_set("OMP_NUM_THREADS")) continue;
    // RTLD_NOLOAD: a library that nobody uses stays out of the process.
    void* handle = library.file == nullptr
                       ? RTLD_DEFAULT
                       : ::dlopen(library.file, RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
    if (library.file != nullptr && handle == nullptr) continue;
    if (auto function = reinterpret_cast<void (*)(int)>(::dlsym(handle, library.function)))
      function(threads);
    if (library.file != nullptr) ::dlclose(handle);
  }
}

}  // namespace troupe::os

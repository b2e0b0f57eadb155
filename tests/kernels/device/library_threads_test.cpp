// Tests that the BLAS library uses the calling thread alone, whatever the environment and
// OpenMP's thread count say.
#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/gemm/blas.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

namespace troupe::kernels {
namespace {

int threads_of_this_process() {
  int count = 0;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    std::sscanf(line, "Threads: %d", &count);
  if (file != nullptr) std::fclose(file);
  return count;
}

TEST(LibraryThreads, AProductStartsNoneThoughOpenMpWasToldEight) {
  void* openmp = ::dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (openmp == nullptr) GTEST_SKIP() << "no OpenMP here";
  auto set = reinterpret_cast<void (*)(int)>(::dlsym(openmp, "omp_set_num_threads"));
  auto get = reinterpret_cast<int (*)()>(::dlsym(openmp, "omp_get_max_threads"));
  const int own = get();
  set(8);
  Device device = cpu_device();
  constexpr std::int64_t n = 512;
  std::vector<float> a(n * n, 1.0f), b(n * n, 1.0f), c(n * n);
  for (const Blas blas : {Blas::onednn, Blas::openblas}) {
    if (!use_blas(blas)) continue;
    const int before = threads_of_this_process();
    device.kernels().gemm(device.compute(), {.m = n,
                                             .n = n,
                                             .k = n,
                                             .a = a.data(),
                                             .lda = n,
                                             .b = b.data(),
                                             .ldb = n,
                                             .c = c.data(),
                                             .ldc = n});
    EXPECT_EQ(threads_of_this_process(), before) << blas_description();
    EXPECT_EQ(c[n], 512.0f);
  }
  EXPECT_EQ(get(), 8);  // the user's own parallel regions keep their thread count
  set(own);
}

}  // namespace
}  // namespace troupe::kernels

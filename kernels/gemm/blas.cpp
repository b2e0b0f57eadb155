#include "troupe/kernels/gemm/blas.hpp"

#include "troupe/kernels/gemm/gemm.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace troupe::kernels {
namespace {

using Sgemm = void (*)(Op, Op, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
                       const float*, std::int64_t, float, float*, std::int64_t);
// dnnl_status_t dnnl_sgemm(...): row-major, 64-bit dimensions; the same in oneDNN 2 and 3.
using DnnlSgemm = int (*)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                          std::int64_t, const float*, std::int64_t, float, float*, std::int64_t);
// cblas_sgemm of a library with 32-bit integers.
using CblasSgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*,
                            int, float, float*, int);

DnnlSgemm dnnl_sgemm = nullptr;
CblasSgemm cblas_sgemm = nullptr;

// Functions of the OpenMP runtime that a library brought; null when it has none.
void (*omp_set_num_threads)(int) = nullptr;
int (*omp_get_max_threads)() = nullptr;

/// While the object lives, a library computes on the calling thread alone. Setting OMP_NUM_THREADS
/// at the load is not enough, since OpenMP may have been loaded before and have read another value.
/// Costs a few nanoseconds.
class OneThread {
 public:
  OneThread() {
    if (omp_get_max_threads != nullptr) before_ = omp_get_max_threads();
    if (before_ != 1) omp_set_num_threads(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);  // for the user's own parallel regions
  }

 private:
  int before_ = 1;
};

/// Finds the OpenMP functions for OneThread, and limits OpenBLAS's own threads to one.
void limit_threads(void* handle) {
  auto set = reinterpret_cast<void (*)(int)>(::dlsym(handle, "omp_set_num_threads"));
  auto get = reinterpret_cast<int (*)()>(::dlsym(handle, "omp_get_max_threads"));
  if (set != nullptr && get != nullptr) {
    omp_set_num_threads = set;
    omp_get_max_threads = get;
  }
  if (auto own = reinterpret_cast<void (*)(int)>(::dlsym(handle, "openblas_set_num_threads")))
    own(1);
}

void onednn_gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                 std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                 std::int64_t ldc) {
  const OneThread one;
  const int status = dnnl_sgemm(static_cast<char>(a_op), static_cast<char>(b_op), m, n, k, 1.0f, a,
                                lda, b, ldb, beta, c, ldc);
  if (status != 0) builtin_gemm(a_op, b_op, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void openblas_gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                   std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                   std::int64_t ldc) {
  constexpr std::int64_t kLimit = 0x7fffffff;  // its integers have 32 bits
  if (m > kLimit || n > kLimit || k > kLimit || lda > kLimit || ldb > kLimit || ldc > kLimit)
    return builtin_gemm(a_op, b_op, m, n, k, a, lda, b, ldb, beta, c, ldc);
  constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
  const OneThread one;
  cblas_sgemm(kRowMajor, a_op == Op::none ? kNoTranspose : kTranspose,
              b_op == Op::none ? kNoTranspose : kTranspose, static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1.0f, a, static_cast<int>(lda), b,
              static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}

/// Sets an environment variable for the lifetime of the object, unless the user has set it.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) {
    if (value == nullptr || std::getenv(name) != nullptr) return;
    if (::setenv(name, value, 0) == 0) name_ = name;
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;
  ~ScopedEnvironment() {
    if (name_ != nullptr) ::unsetenv(name_);
  }

 private:
  const char* name_ = nullptr;
};

/// Returns the CPU type that OpenBLAS should assume: it takes CPUs newer than itself for very old
/// ones. Null leaves the choice to OpenBLAS.
const char* openblas_core() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

/// Compares a small product with that of builtin_gemm(). The product also makes the library finish
/// its lazy initialisation.
bool multiplies_rightly(Sgemm gemm) {
  constexpr std::int64_t kSize = 24;
  std::vector<float> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize, 1.0f), expected(c);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    b[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
  }
  gemm(Op::none, Op::transpose, kSize, kSize, kSize, a.data(), kSize, b.data(), kSize, 1, c.data(),
       kSize);
  builtin_gemm(Op::none, Op::transpose, kSize, kSize, kSize, a.data(), kSize, b.data(), kSize, 1,
               expected.data(), kSize);
  return c == expected;  // small integers: every order of summation is exact
}

struct Library {
  Blas kind;
  const char* name;
  const char* symbol;
  std::array<const char*, 3> files;
};
// In order of preference.
constexpr std::array<Library, 2> kLibraries = {{
    {Blas::onednn, "oneDNN", "dnnl_sgemm", {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}},
    {Blas::openblas,
     "OpenBLAS",
     "cblas_sgemm",
     {"libopenblas.so.0", "libopenblas.so", "libcblas.so.3"}},
}};

/// Opens a library and returns its file, or nullopt. The library stays open for the life of the
/// process.
std::optional<std::string> open(const Library& library) {
  const ScopedEnvironment omp("OMP_NUM_THREADS", "1");
  const ScopedEnvironment threads("OPENBLAS_NUM_THREADS", "1");
  const ScopedEnvironment core("OPENBLAS_CORETYPE", openblas_core());
  // No AMX: some virtual machines announce it but do not allow it, and using it raises SIGILL.
  const ScopedEnvironment isa("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16");
  for (const char* file : library.files) {
    void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    void* symbol = ::dlsym(handle, library.symbol);
    if (symbol == nullptr) {
      ::dlclose(handle);
      continue;
    }
    limit_threads(handle);
    const bool onednn = library.kind == Blas::onednn;
    if (onednn)
      dnnl_sgemm = reinterpret_cast<DnnlSgemm>(symbol);
    else
      cblas_sgemm = reinterpret_cast<CblasSgemm>(symbol);
    if (multiplies_rightly(onednn ? onednn_gemm : openblas_gemm)) return file;
  }
  return std::nullopt;
}

/// The libraries that were opened, and the one in use.
struct State {
  std::mutex mutex;
  bool chosen = false;
  Blas kind = Blas::builtin;
  std::string description = "built-in";
  std::array<std::optional<std::string>, kLibraries.size()> files;
};
State& state() {
  static State s;
  return s;
}
// The function in use; null before the first product. It is published after the library's function
// pointers above are set (release), and gemm() reads it without the mutex (acquire).
std::atomic<Sgemm> current{nullptr};

bool use_locked(State& s, Blas which) {
  if (which == Blas::builtin) {
    s.description = "built-in";
    current.store(builtin_gemm, std::memory_order_release);
  }
  for (std::size_t i = 0; i < kLibraries.size(); ++i) {
    if (kLibraries[i].kind != which) continue;
    if (!s.files[i]) s.files[i] = open(kLibraries[i]);
    if (!s.files[i]) return false;
    s.description = std::string(kLibraries[i].name) + " (" + *s.files[i] + ")";
    current.store(which == Blas::onednn ? onednn_gemm : openblas_gemm, std::memory_order_release);
  }
  s.kind = which;
  s.chosen = true;
  return true;
}

Sgemm loaded() {
  Sgemm gemm = current.load(std::memory_order_acquire);
  if (__builtin_expect(gemm == nullptr, 0)) {
    load_blas();
    gemm = current.load(std::memory_order_acquire);
  }
  return gemm;
}

}  // namespace

std::optional<Blas> blas_of(const Environment& environment) {
  const auto named = environment.choice("TROUPE_BLAS", {"builtin", "onednn", "openblas"});
  if (!named) return std::nullopt;
  return static_cast<Blas>(*named);
}

Blas load_blas() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.chosen) return s.kind;
  const std::optional<Blas> wanted = blas_of(Environment());
  if (wanted == Blas::openblas && use_locked(s, Blas::openblas)) return s.kind;
  if (wanted != Blas::builtin && use_locked(s, Blas::onednn)) return s.kind;
  if (wanted != Blas::builtin && use_locked(s, Blas::openblas)) return s.kind;
  use_locked(s, Blas::builtin);
  return s.kind;
}

bool use_blas(Blas which) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return use_locked(s, which);
}

std::string blas_description() {
  load_blas();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.description;
}

void gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return builtin_gemm(a_op, b_op, m, n, 0, a, lda, b, ldb, beta, c, ldc);
  loaded()(a_op, b_op, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace troupe::kernels

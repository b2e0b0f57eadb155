#include "tests/gpu/bench/raw_products.hpp"

#include "tests/gpu/bench/measure.hpp"
#include "tests/gpu/cuda_runtime.hpp"
#include "troupe/kernels/gemm/blas.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define TROUPE_CUBLASLT_HEADER 1
#endif

namespace troupe::gpu {
namespace {

using kernels::DType;
using kernels::Gemm;

/// The CPU's BLAS, for f32. It has no other type, so products of other types are measured as
/// kernels::gemm itself.
class CpuProducts final : public RawProducts {
 public:
  explicit CpuProducts(kernels::Device& device) : device_(device) { kernels::load_blas(); }
  std::string name() const override { return kernels::blas_description(); }
  double seconds(const Gemm& o, bool, double budget) override {
    return seconds_of(
        device_,
        [&] { o.type == DType::f32 ? multiply(o) : device_.kernels().gemm(device_.compute(), o); },
        budget);
  }

 private:
  static void multiply(const Gemm& o) {
    kernels::gemm(o.a_op, o.b_op, o.m, o.n, o.k, static_cast<const float*>(o.a), o.lda,
                  static_cast<const float*>(o.b), o.ldb, o.beta, static_cast<float*>(o.c), o.ldc);
  }
  kernels::Device& device_;
};

#ifdef TROUPE_CUBLASLT_HEADER

/// The functions of cuBLASLt that a plain product needs. The header gives their types.
struct Lt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("libcublasLt has no ") + name);
}

void* open_library() {
  std::vector<std::string> folders{""};
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(name)) folders.push_back(std::string(root) + "/lib64/");
  folders.emplace_back("/usr/local/cuda/lib64/");
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  for (const std::string& folder : folders)
    if (void* library = ::dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw std::runtime_error("no " + file + " where the loader looks, nor below CUDA_HOME");
}

Lt open_lt() {
  void* library = open_library();
  Lt lt;
  find(library, "cublasLtCreate", lt.create);
  find(library, "cublasLtDestroy", lt.destroy);
  find(library, "cublasLtGetVersion", lt.version);
  find(library, "cublasLtMatmul", lt.multiply);
  find(library, "cublasLtMatmulAlgoGetHeuristic", lt.propose);
  find(library, "cublasLtMatmulDescCreate", lt.create_operation);
  find(library, "cublasLtMatmulDescDestroy", lt.destroy_operation);
  find(library, "cublasLtMatmulDescSetAttribute", lt.set_operation);
  find(library, "cublasLtMatrixLayoutCreate", lt.create_layout);
  find(library, "cublasLtMatrixLayoutDestroy", lt.destroy_layout);
  find(library, "cublasLtMatmulPreferenceCreate", lt.create_preference);
  find(library, "cublasLtMatmulPreferenceDestroy", lt.destroy_preference);
  find(library, "cublasLtMatmulPreferenceSetAttribute", lt.set_preference);
  return lt;
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + " gave status " + std::to_string(status));
}

cudaDataType_t type_of(DType type) {
  if (type == DType::f32) return CUDA_R_32F;
  if (type == DType::bf16) return CUDA_R_16BF;
  if (type == DType::f16) return CUDA_R_16F;
  throw std::runtime_error("cuBLASLt is measured in f32, bf16 and f16");
}

/// The descriptors of one product. The library is column-major, so it computes c^T = op(b)^T
/// op(a)^T: a and b change places.
class Description {
 public:
  Description(const Lt& lt, const Gemm& o, bool tf32, std::size_t workspace) : lt_(lt) {
    const auto compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(lt.create_operation(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const bool a_plain = o.a_op == kernels::Op::none, b_plain = o.b_op == kernels::Op::none;
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, b_plain);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, a_plain);
    layout(0, o.type, b_plain ? o.n : o.k, b_plain ? o.k : o.n, o.ldb);
    layout(1, o.type, a_plain ? o.k : o.m, a_plain ? o.m : o.k, o.lda);
    layout(2, o.c_type, o.n, o.m, o.ldc);
    check(lt.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    check(lt.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                            sizeof workspace),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() {
    if (preference != nullptr) lt_.destroy_preference(preference);
    for (cublasLtMatrixLayout_t one : layouts)
      if (one != nullptr) lt_.destroy_layout(one);
    if (operation != nullptr) lt_.destroy_operation(operation);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::array<cublasLtMatrixLayout_t, 3> layouts{};

 private:
  void transpose(cublasLtMatmulDescAttributes_t which, bool plain) {
    const cublasOperation_t value = plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    check(lt_.set_operation(operation, which, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  void layout(std::size_t which, DType type, std::int64_t rows, std::int64_t columns,
              std::int64_t pitch) {
    check(lt_.create_layout(&layouts[which], type_of(type), static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), pitch),
          "cublasLtMatrixLayoutCreate");
  }
  const Lt& lt_;
};

class LtProducts final : public RawProducts {
 public:
  LtProducts() : lt_(open_lt()), cuda_(open_cuda_runtime()) {
    check(lt_.create(&handle_), "cublasLtCreate");
    cuda_.check(cuda_.create_stream(&stream_), "cudaStreamCreate");
    cuda_.check(cuda_.allocate(&workspace_, kWorkspace), "cudaMalloc");
  }
  ~LtProducts() override {
    cuda_.release(workspace_);
    lt_.destroy(handle_);
  }
  std::string name() const override {
    const std::size_t version = lt_.version();
    return "cuBLASLt " + std::to_string(version / 10000) + "." +
           std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  }
  double seconds(const Gemm& o, bool tf32, double budget) override {
    const Description description(lt_, o, tf32, kWorkspace);
    std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals{};
    int found = 0;
    check(lt_.propose(handle_, description.operation, description.layouts[0],
                      description.layouts[1], description.layouts[2], description.layouts[2],
                      description.preference, kProposals, proposals.data(), &found),
          "cublasLtMatmulAlgoGetHeuristic");
    double best = 0;
    for (int i = 0; i < found; ++i) {
      const double one =
          of_one(o, description, proposals[static_cast<std::size_t>(i)], budget / found);
      if (one > 0 && (best == 0 || one < best)) best = one;
    }
    if (best == 0) throw std::runtime_error("cuBLASLt has no algorithm for this product");
    return best;
  }

 private:
  /// Returns the seconds of one algorithm; 0 when the algorithm cannot run here.
  double of_one(const Gemm& o, const Description& d, const cublasLtMatmulHeuristicResult_t& with,
                double budget) {
    if (with.state != CUBLAS_STATUS_SUCCESS || !multiply(o, d, with)) return 0;
    const double one = batch(o, d, with, 1);
    const int calls = static_cast<int>(std::clamp(budget / 5 / one, 1.0, 1000.0));
    std::array<double, 5> batches{};
    for (double& seconds : batches) seconds = batch(o, d, with, calls);
    std::nth_element(batches.begin(), batches.begin() + 2, batches.end());
    return batches[2];
  }
  double batch(const Gemm& o, const Description& d, const cublasLtMatmulHeuristicResult_t& with,
               int calls) {
    cuda_.check(cuda_.synchronize(), "cudaDeviceSynchronize");
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) multiply(o, d, with);
    cuda_.check(cuda_.synchronize(), "cudaDeviceSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() / calls;
  }
  bool multiply(const Gemm& o, const Description& d, const cublasLtMatmulHeuristicResult_t& with) {
    const float alpha = 1;
    return lt_.multiply(handle_, d.operation, &alpha, o.b, d.layouts[0], o.a, d.layouts[1], &o.beta,
                        o.c, d.layouts[2], o.c, d.layouts[2], &with.algo, workspace_, kWorkspace,
                        static_cast<cudaStream_t>(stream_)) == CUBLAS_STATUS_SUCCESS;
  }

  static constexpr int kProposals = 8;
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  Lt lt_;
  CudaRuntime cuda_;
  cublasLtHandle_t handle_ = nullptr;
  Stream stream_ = nullptr;
  void* workspace_ = nullptr;
};

#endif

}  // namespace

std::unique_ptr<RawProducts> raw_products(kernels::Device& device) {
  if (device.is_cpu()) return std::make_unique<CpuProducts>(device);
#ifdef TROUPE_CUBLASLT_HEADER
  return std::make_unique<LtProducts>();
#else
  throw std::runtime_error("this program was compiled without cublasLt.h");
#endif
}

}  // namespace troupe::gpu

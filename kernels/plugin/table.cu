// Contexts, memory and the table itself.
#include "internal.cuh"

#include <new>

namespace troupe_cuda {
namespace {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

const char* error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

void destroy(troupe_cuda_context* c) {
  if (c == nullptr) return;
  cudaSetDevice(c->device);
  if (c->stream) cudaStreamSynchronize(c->stream);
  destroy_gemm(c);
  if (c->partials) cudaFree(c->partials);
  if (c->stream) cudaStreamDestroy(c->stream);
  delete c;
}

int create(int device, troupe_cuda_context** context) {
  *context = nullptr;
  auto* c = new (std::nothrow) troupe_cuda_context;
  if (c == nullptr) return cudaErrorMemoryAllocation;
  c->device = device;
  int error = cudaSetDevice(device);
  if (!error) error = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
  if (!error)
    error = cudaMalloc(reinterpret_cast<void**>(&c->partials), kPartials * sizeof(double));
  if (!error) error = create_gemm(c);
  if (error)
    destroy(c);
  else
    *context = c;
  return error;
}

int make_current(troupe_cuda_context* c) {
  return cudaSetDevice(c->device);
}

int allocate(troupe_cuda_context* c, void** memory, size_t bytes) {
  if (const int error = cudaSetDevice(c->device)) return error;
  return cudaMalloc(memory, bytes);
}

int release(troupe_cuda_context* c, void* memory) {
  if (const int error = cudaStreamSynchronize(c->stream)) return error;
  return cudaFree(memory);
}

int copy_to_device(troupe_cuda_context* c, void* to, const void* from, size_t bytes) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream);
}

int copy_to_host(troupe_cuda_context* c, void* to, const void* from, size_t bytes) {
  if (const int error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream))
    return error;
  return cudaStreamSynchronize(c->stream);
}

int synchronize(troupe_cuda_context* c) {
  return cudaStreamSynchronize(c->stream);
}

troupe_cuda_table make_table() {
  troupe_cuda_table t{};
  t.version = TROUPE_CUDA_TABLE_VERSION;
  t.size = sizeof t;
  t.device_count = device_count;
  t.error_text = error_text;
  t.create = create;
  t.destroy = destroy;
  t.make_current = make_current;
  t.allocate = allocate;
  t.release = release;
  t.copy_to_device = copy_to_device;
  t.copy_to_host = copy_to_host;
  t.synchronize = synchronize;
  t.gemm = gemm;
  t.add_bias = add_bias;
  t.add_bias_backward = add_bias_backward;
  t.gelu_forward = gelu_forward;
  t.gelu_backward = gelu_backward;
  t.layernorm_forward = layernorm_forward;
  t.layernorm_backward_input = layernorm_backward_input;
  t.layernorm_backward_weight = layernorm_backward_weight;
  t.embedding_forward = embedding_forward;
  t.embedding_backward = embedding_backward;
  t.attention_forward = attention_forward;
  t.attention_backward = attention_backward;
  t.cross_entropy_forward = cross_entropy_forward;
  t.cross_entropy_fused = cross_entropy_fused;
  t.fill = fill;
  t.scale = scale;
  t.axpy = axpy;
  t.add = add;
  t.adamw = adamw;
  t.sum_of_squares = sum_of_squares;
  t.philox_normal = philox_normal;
  return t;
}

}  // namespace
}  // namespace troupe_cuda

extern "C" __attribute__((visibility("default"))) const troupe_cuda_table* troupe_cuda_get_table(
    uint32_t version) {
  static const troupe_cuda_table table = troupe_cuda::make_table();
  return version == table.version ? &table : nullptr;
}

// Contexts, memory and events of the plug-in, and its table of functions.
#include "internal.cuh"

#include <cstring>
#include <new>

namespace troupe_cuda {
namespace {

/// Returns the error, and clears it in the CUDA runtime: otherwise the next launched() would report
/// it.
int noted(int error) {
  cudaGetLastError();
  return error;
}

}  // namespace

int scratch(troupe_cuda_context* c, size_t bytes, void** memory) {
  if (bytes > c->scratch_bytes) {
    void* larger = nullptr;
    if (const int error = cudaMalloc(&larger, bytes)) return noted(error);
    if (const int error = cudaStreamSynchronize(c->stream)) {
      cudaFree(larger);
      return error;
    }
    if (c->scratch) cudaFree(c->scratch);
    c->scratch = larger;
    c->scratch_bytes = bytes;
  }
  *memory = c->scratch;
  return 0;
}

namespace {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

const char* error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int device_name(int device, char* name, size_t size) {
  cudaDeviceProp properties{};
  if (const int error = cudaGetDeviceProperties(&properties, device)) return error;
  std::strncpy(name, properties.name, size);
  if (size > 0) name[size - 1] = 0;
  return 0;
}

void destroy(troupe_cuda_context* c) {
  if (c == nullptr) return;
  cudaSetDevice(c->device);
  if (c->stream) cudaStreamSynchronize(c->stream);
  destroy_products(c);
  if (c->scratch) cudaFree(c->scratch);
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
  if (error)
    destroy(c);
  else
    *context = c;
  return error;
}

int synchronize(troupe_cuda_context* c) {
  return cudaStreamSynchronize(c->stream);
}

void* stream_of(troupe_cuda_context* c) {
  return c->stream;
}

int make_current(int device) {
  return cudaSetDevice(device);
}

int is_device_memory(const void* memory, int* yes) {
  cudaPointerAttributes known{};
  if (const int error = cudaPointerGetAttributes(&known, memory)) return noted(error);
  *yes = known.type == cudaMemoryTypeDevice || known.type == cudaMemoryTypeManaged;
  return 0;
}

int allocate(int device, void** memory, size_t bytes, int pinned) {
  if (const int error = cudaSetDevice(device)) return error;
  if (pinned) {
    if (const int error = cudaHostAlloc(memory, bytes, cudaHostAllocPortable)) return noted(error);
    std::memset(*memory, 0, bytes);
    return 0;
  }
  if (const int error = cudaMalloc(memory, bytes)) return noted(error);
  int error = cudaMemset(*memory, 0, bytes);
  // The memory must be zero before any stream uses it.
  if (!error) error = cudaStreamSynchronize(cudaStreamLegacy);
  if (error) cudaFree(*memory);
  return error;
}

int release(int device, void* memory, int pinned) {
  if (const int error = cudaSetDevice(device)) return error;
  return pinned ? cudaFreeHost(memory) : cudaFree(memory);
}

int copy(troupe_cuda_context* c, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return 0;
  if (const int error = cudaSetDevice(c->device)) return error;
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->stream);
}

int scratch_of(troupe_cuda_context* c, size_t bytes, void** memory) {
  if (const int error = cudaSetDevice(c->device)) return error;
  return scratch(c, bytes, memory);
}

int record(troupe_cuda_context* c, void** event) {
  if (const int error = cudaSetDevice(c->device)) return error;
  cudaEvent_t made = nullptr;
  if (const int error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming)) return error;
  if (const int error = cudaEventRecord(made, c->stream)) {
    cudaEventDestroy(made);
    return error;
  }
  *event = made;
  return 0;
}

int wait(troupe_cuda_context* c, void* event) {
  return cudaStreamWaitEvent(c->stream, static_cast<cudaEvent_t>(event), 0);
}

int has_happened(void* event, int* yes) {
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
  *yes = state == cudaSuccess;
  return state == cudaErrorNotReady ? (noted(state), 0) : static_cast<int>(state);
}

void forget(void* event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

template <class O>
int on_device(int (*operation)(troupe_cuda_context*, const O&), troupe_cuda_context* c,
              const O* o) {
  if (const int error = cudaSetDevice(c->device)) return error;
  return operation(c, *o);
}

int philox_normal_on_device(troupe_cuda_context* c, float* out, int64_t n, uint64_t seed,
                            uint64_t stream, uint64_t first, float mean, float deviation) {
  if (const int error = cudaSetDevice(c->device)) return error;
  return philox_normal(c, out, n, seed, stream, first, mean, deviation);
}

troupe_cuda_table make_table() {
  troupe_cuda_table t{};
  t.version = TROUPE_CUDA_TABLE_VERSION;
  t.size = sizeof t;
  t.operations = troupe_cuda_operations_size();
  t.device_count = device_count;
  t.error_text = error_text;
  t.device_name = device_name;
  t.create = create;
  t.destroy = destroy;
  t.synchronize = synchronize;
  t.stream = stream_of;
  t.make_current = make_current;
  t.is_device_memory = is_device_memory;
  t.allocate = allocate;
  t.release = release;
  t.copy = copy;
  t.scratch = scratch_of;
  t.record = record;
  t.wait = wait;
  t.has_happened = has_happened;
  t.forget = forget;
#define TROUPE_CUDA_ENTRY(name, Type)                           \
  t.name = [](troupe_cuda_context* c, const kernels::Type* o) { \
    return on_device<kernels::Type>(troupe_cuda::name, c, o);   \
  };
  TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY
  t.philox_normal = philox_normal_on_device;
  return t;
}

}  // namespace
}  // namespace troupe_cuda

extern "C" __attribute__((visibility("default"))) const troupe_cuda_table* troupe_cuda_get_table(
    uint32_t version) {
  static const troupe_cuda_table table = troupe_cuda::make_table();
  return version == table.version ? &table : nullptr;
}

/// The C interface of the CUDA plug-in (kernels/plugin): memory, streams, and the CUDA versions of
/// all operations.
///
///     const troupe_cuda_table* t = troupe_cuda_get_table(TROUPE_CUDA_TABLE_VERSION);
///     const Activate o{.n = n, .in = in, .out = out};      // device pointers
///     if (int error = t->activate(context, &o)) std::puts(t->error_text(error));
///
/// A context is one stream of one device and its workspace, for one thread at a time. Calls are
/// ordered in the context's stream and return before the work is done. Only synchronize blocks, and
/// a copy from or to memory that the driver does not know. Functions return 0 or a cudaError_t. The
/// rules of operations.hpp hold for f32, bf16 and f16; f64 gives cudaErrorNotSupported except for
/// transposes and casts.
/// **Compiled only: no entry has run on a device so far.**
#pragma once

#include "troupe/kernels/device/operations.hpp"

#include <cstddef>
#include <cstdint>

/// One line per operation: its name in the table, and the struct of its operands.
#define TROUPE_CUDA_OPERATIONS(X)          \
  X(gemm, Gemm)                            \
  X(activate, Activate)                    \
  X(activate_backward, ActivateBackward)   \
  X(gated_silu, GatedSilu)                 \
  X(gated_silu_backward, GatedSilu)        \
  X(norm, Norm)                            \
  X(norm_backward_input, NormBackward)     \
  X(norm_backward_weight, NormBackward)    \
  X(attention, Attention)                  \
  X(attention_backward, AttentionBackward) \
  X(rope, Rope)                            \
  X(embedding, Embedding)                  \
  X(embedding_backward, Embedding)         \
  X(cross_entropy, CrossEntropy)           \
  X(cross_entropy_stats, CrossEntropy)     \
  X(cross_entropy_finish, CrossEntropy)    \
  X(combine_stats, CombineStats)           \
  X(dropout, Dropout)                      \
  X(im2col, Im2col)                        \
  X(col2im, Im2col)                        \
  X(max_pool, MaxPool)                     \
  X(max_pool_backward, MaxPool)            \
  X(transpose, Transpose)                  \
  X(add, Elementwise)                      \
  X(scale, Elementwise)                    \
  X(fill, Elementwise)                     \
  X(column_sum, ColumnSum)                 \
  X(cast, Cast)                            \
  X(adamw, AdamW)                          \
  X(sgd, Sgd)                              \
  X(chunk_squares, ChunkSquares)

extern "C" {

#define TROUPE_CUDA_TABLE_VERSION 3u

typedef struct troupe_cuda_context troupe_cuda_context;

typedef struct troupe_cuda_table {
  std::uint32_t version;
  std::uint32_t size;        ///< of this struct, in bytes
  std::uint32_t operations;  ///< the plug-in's troupe_cuda_operations_size()

  /// Counts the devices that answer; 0 without a driver.
  int (*device_count)();
  const char* (*error_text)(int error);
  /// Writes a name such as "NVIDIA H200", at most `size` bytes with the terminating zero.
  int (*device_name)(int device, char* name, std::size_t size);
  int (*create)(int device, troupe_cuda_context** context);
  void (*destroy)(troupe_cuda_context* context);
  int (*synchronize)(troupe_cuda_context*);
  void* (*stream)(troupe_cuda_context*);  ///< returns its cudaStream_t, for NCCL
  /// Makes other CUDA libraries that the calling thread calls use this device.
  int (*make_current)(int device);

  /// Allocates zeroed, 256-byte aligned memory: of the device, or with `pinned` of the host. Any
  /// thread may call it.
  int (*allocate)(int device, void** memory, std::size_t bytes, int pinned);
  int (*release)(int device, void* memory, int pinned);
  /// Sets `yes` for memory of a device and managed memory. Memory that the driver does not know is
  /// the host's.
  int (*is_device_memory)(const void* memory, int* yes);
  /// Copies between any two places.
  int (*copy)(troupe_cuda_context*, void* to, const void* from, std::size_t bytes);
  /// Returns memory of the device that is valid until the next call on the context.
  int (*scratch)(troupe_cuda_context*, std::size_t bytes, void** memory);

  /// Records an event for all work enqueued so far. Pass it to forget() in the end.
  int (*record)(troupe_cuda_context*, void** event);
  int (*wait)(troupe_cuda_context*, void* event);  ///< makes the stream wait; does not block
  int (*has_happened)(void* event, int* yes);
  void (*forget)(void* event);

#define TROUPE_CUDA_ENTRY(name, Type) \
  int (*name)(troupe_cuda_context*, const troupe::kernels::Type*);
  TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY

  /// As philox_normal of philox.hpp.
  int (*philox_normal)(troupe_cuda_context*, float* out, std::int64_t n, std::uint64_t seed,
                       std::uint64_t stream, std::uint64_t first, float mean, float deviation);
} troupe_cuda_table;

/// The plug-in's only exported symbol. Returns null for a version that it does not have.
const troupe_cuda_table* troupe_cuda_get_table(std::uint32_t version);

}  // extern "C"

/// Hashes the sizes of all operand structs. The library compares its number with the plug-in's: if
/// they differ, so do the structs.
constexpr std::uint32_t troupe_cuda_operations_size() {
  std::size_t bytes = 0;
#define TROUPE_CUDA_ENTRY(name, Type) bytes = bytes * 31 + sizeof(troupe::kernels::Type);
  TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY
  return static_cast<std::uint32_t>(bytes);
}

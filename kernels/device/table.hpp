/// The doors of the CUDA plug-in: one table of C functions, the twins of the CPU kernels.
///
///     const troupe_cuda_table* t = troupe_cuda_get_table(TROUPE_CUDA_TABLE_VERSION);
///     t->gelu_forward(context, out, in, n);      // device pointers; returns 0 or a cudaError_t
///
/// A context is one device, one stream and its workspace; for one thread at a time. Every call is
/// ordered in the context's stream and returns before the work is done; only synchronize,
/// copy_to_host and sum_of_squares wait. Rules of kernels.hpp hold: gradients add up, sums have one
/// order (no atomics), so equal inputs give equal bits on equal devices.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

#define TROUPE_CUDA_TABLE_VERSION 1u

typedef struct troupe_cuda_context troupe_cuda_context;

typedef struct troupe_cuda_adamw_step {
  float rate, beta1, beta2, epsilon, decay, gradient_scale;
  int64_t step;
} troupe_cuda_adamw_step;

typedef struct troupe_cuda_table {
  uint32_t version;
  uint32_t size; /* of this struct, in bytes */

  /* devices that answer; 0 without a driver */
  int (*device_count)(void);
  const char* (*error_text)(int error);
  int (*create)(int device, troupe_cuda_context** context);
  void (*destroy)(troupe_cuda_context* context);
  /* before the first call by another thread than the one that called create */
  int (*make_current)(troupe_cuda_context*);
  int (*allocate)(troupe_cuda_context*, void** memory, size_t bytes);
  int (*release)(troupe_cuda_context*, void* memory);
  int (*copy_to_device)(troupe_cuda_context*, void* to, const void* from, size_t bytes);
  int (*copy_to_host)(troupe_cuda_context*, void* to, const void* from, size_t bytes);
  int (*synchronize)(troupe_cuda_context*);

  /* ops are 'N' or 'T' */
  int (*gemm)(troupe_cuda_context*, char a_op, char b_op, int64_t m, int64_t n, int64_t k,
              const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
              int64_t ldc);
  int (*add_bias)(troupe_cuda_context*, float* out, const float* bias, int64_t rows,
                  int64_t columns);
  int (*add_bias_backward)(troupe_cuda_context*, float* dbias, const float* dout, int64_t rows,
                           int64_t columns);
  int (*gelu_forward)(troupe_cuda_context*, float* out, const float* in, int64_t n);
  int (*gelu_backward)(troupe_cuda_context*, float* din, const float* dout, const float* in,
                       int64_t n);
  int (*layernorm_forward)(troupe_cuda_context*, float* out, float* mean, float* rstd,
                           const float* in, const float* weight, const float* bias, int64_t rows,
                           int64_t channels);
  int (*layernorm_backward_input)(troupe_cuda_context*, float* din, const float* dout,
                                  const float* in, const float* weight, const float* mean,
                                  const float* rstd, int64_t rows, int64_t channels);
  int (*layernorm_backward_weight)(troupe_cuda_context*, float* dweight, float* dbias,
                                   const float* dout, const float* in, const float* mean,
                                   const float* rstd, int64_t rows, int64_t channels);
  int (*embedding_forward)(troupe_cuda_context*, float* out, const int32_t* tokens,
                           const float* wte, const float* wpe, int64_t batch, int64_t time,
                           int64_t channels);
  int (*embedding_backward)(troupe_cuda_context*, float* dwte, float* dwpe, const float* dout,
                            const int32_t* tokens, int64_t batch, int64_t time, int64_t channels);
  int (*attention_forward)(troupe_cuda_context*, float* out, float* probabilities, const float* qkv,
                           int64_t batch, int64_t time, int64_t channels, int64_t heads);
  /* scratch: as many floats as probabilities */
  int (*attention_backward)(troupe_cuda_context*, float* dqkv, const float* dout, const float* qkv,
                            const float* probabilities, float* scratch, int64_t batch, int64_t time,
                            int64_t channels, int64_t heads);
  int (*cross_entropy_forward)(troupe_cuda_context*, float* losses, const float* logits,
                               const int32_t* targets, int64_t rows, int64_t classes);
  int (*cross_entropy_fused)(troupe_cuda_context*, float* losses, float* logits,
                             const int32_t* targets, int64_t rows, int64_t classes, float scale);
  int (*fill)(troupe_cuda_context*, float* x, float value, int64_t n);
  int (*scale)(troupe_cuda_context*, float* x, float factor, int64_t n);
  int (*axpy)(troupe_cuda_context*, float* y, float factor, const float* x, int64_t n);
  int (*add)(troupe_cuda_context*, float* out, const float* a, const float* b, int64_t n);
  int (*adamw)(troupe_cuda_context*, float* parameters, float* m, float* v, const float* gradients,
               int64_t n, const troupe_cuda_adamw_step* step);
  int (*sum_of_squares)(troupe_cuda_context*, const float* x, int64_t n, double* result);
  int (*philox_normal)(troupe_cuda_context*, float* out, int64_t n, uint64_t seed, uint64_t stream,
                       uint64_t first, float mean, float deviation);
} troupe_cuda_table;

/* The plug-in's only exported symbol; null for a version that it does not have. */
const troupe_cuda_table* troupe_cuda_get_table(uint32_t version);

}  // extern "C"

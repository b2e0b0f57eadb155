/// The maths of troupe: raw pointers and sizes, row-major float matrices, no tensor type, no
/// runtime.
///
///     layernorm_forward(out, mean, rstd, in, weight, bias, rows, channels);
///     gemm(Op::none, Op::transpose, rows, out, in, x, in, w, in, 0, y, out);
///     gelu_backward(din, dout, in, n);                     // adds to din
///
/// Rules for every function:
///  K-1  it runs on the calling thread and returns when the result is written; it never allocates
///       more than a per-thread scratch, never throws, and may be called from many threads at once;
///  K-2  a backward function adds to its gradients (+=): the caller zeroes them;
///  K-3  sums run in one fixed order; without a BLAS library the bits are equal on every machine;
///  K-4  sizes are the caller's duty: pointers to enough elements, tokens and targets in range;
///       0 elements are fine; hold a FlushDenormals around a training step;
///  K-5  inputs and outputs do not overlap except where a function says so.
/// kernels/plugin holds the same functions for CUDA, kernels/device finds them.
#pragma once

#include "troupe/kernels/adamw/adamw.hpp"
#include "troupe/kernels/attention/attention.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/elementwise/elementwise.hpp"
#include "troupe/kernels/embedding/embedding.hpp"
#include "troupe/kernels/gelu/gelu.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/gemm/gemm.hpp"
#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/layernorm/layernorm.hpp"
#include "troupe/kernels/norm/norm.hpp"
#include "troupe/kernels/philox/philox.hpp"

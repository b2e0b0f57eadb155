/// Which library multiplies matrices. The libraries are plug-ins, opened at the first product (so
/// in a worker, after the fork) and never linked: OpenBLAS would start a thread before main.
///
///     std::puts(blas_description().c_str());   // "oneDNN (libdnnl.so.2)"
///
/// TROUPE_BLAS=builtin|onednn|openblas in the environment overrides the order of preference.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/environment.hpp"

#include <optional>
#include <string>

namespace troupe::kernels {

enum class Blas { builtin, onednn, openblas };

/// Opens the first library that answers and multiplies rightly: oneDNN, OpenBLAS, else none.
/// One thread per calling thread. Does nothing when called again; gemm() calls it when needed.
/// Throws InvalidArgument when TROUPE_BLAS names none of the three.
/// Blocks for the load (about 20 ms); sets the libraries' environment variables for that time, so
/// no other thread should read or change the environment meanwhile.
TROUPE_API Blas load_blas();

/// What TROUPE_BLAS names; nothing when it is not set. Throws as load_blas().
TROUPE_API std::optional<Blas> blas_of(const Environment& environment);

/// Uses this one from now on, for tests and benches. Returns false, and changes nothing, when the
/// library is absent. Not while another thread is inside gemm().
TROUPE_API bool use_blas(Blas which);

/// The library in use and its file, for logs.
TROUPE_API std::string blas_description();

}  // namespace troupe::kernels

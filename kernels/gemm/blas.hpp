/// The choice of the library that gemm() uses. Libraries are opened as plug-ins at the first
/// product, which is in a worker and after its fork. They are never linked, since OpenBLAS would
/// start a thread before main.
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

/// Opens the first library that can be loaded and computes a test product correctly: oneDNN, then
/// OpenBLAS, else the built-in product. The library computes on the calling thread only. Later
/// calls only return the choice. gemm() calls it when needed.
/// Throws InvalidArgument when TROUPE_BLAS names none of the three. Blocks while the library loads.
/// It sets the libraries' environment variables meanwhile, so that no other thread may read or
/// change the environment then.
TROUPE_API Blas load_blas();

/// Returns the library that TROUPE_BLAS names, or nothing when it is not set. Throws as
/// load_blas().
TROUPE_API std::optional<Blas> blas_of(const Environment& environment);

/// Uses this library from now on, for tests and benches. Returns false, and changes nothing, when
/// the library is absent. Do not call it while another thread is inside gemm().
TROUPE_API bool use_blas(Blas which);

/// Returns the library in use and its file, for logs.
TROUPE_API std::string blas_description();

}  // namespace troupe::kernels

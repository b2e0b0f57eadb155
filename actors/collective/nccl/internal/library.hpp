/// Finds and opens NCCL's library at run time. Nothing of troupe links NCCL or includes its header.
///
///     const Library& nccl = library();              // throws Unavailable when there is none
///     nccl.check(nccl.get_unique_id(&id), "ncclGetUniqueId");
///
/// The prototypes below have been the same since NCCL 2.19. The one structure is the oldest form of
/// NCCL's configuration, which later versions recognise by its size and version.
#pragma once

#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/error.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::collective::nccl {

using Result = int;  ///< ncclResult_t
constexpr Result kSuccess = 0, kInProgress = 7;
using Comm = struct ncclComm*;
using Stream = void*;  ///< cudaStream_t
struct UniqueId {
  char bytes[128];
};
/// The values of ncclDataType_t and ncclRedOp_t.
enum DataType : int { i8 = 0, u8 = 1, i32 = 2, i64 = 4, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
enum Operation : int { sum = 0, product = 1, max = 2, min = 3, average = 4 };

/// ncclConfig_t of version 2.14. A later NCCL uses its defaults for later members.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
constexpr int kNoColor = -1;

constexpr int kOldest = 21903;             ///< 2.19.3
constexpr int kBeforeMajorChange = 30000;  ///< another major version has other prototypes
constexpr int kMultiRankGpu = 23003;       ///< 2.30.3 has NCCL_MULTI_RANK_GPU_ENABLE

struct Library {
  std::string path;
  int version = 0;  ///< 22809 is 2.28.9

  Result (*get_version)(int*) = nullptr;
  Result (*get_unique_id)(UniqueId*) = nullptr;
  Result (*init_rank)(Comm*, int ranks, UniqueId, int rank) = nullptr;
  Result (*init_rank_config)(Comm*, int ranks, UniqueId, int rank, Config*) = nullptr;
  /// A null configuration stands for the parent's.
  Result (*split)(Comm, int color, int key, Comm*, Config*) = nullptr;
  Result (*finalize)(Comm) = nullptr;
  Result (*destroy)(Comm) = nullptr;
  Result (*abort)(Comm) = nullptr;
  Result (*async_error)(Comm, Result*) = nullptr;
  Result (*all_reduce)(const void*, void*, std::size_t, DataType, Operation, Comm,
                       Stream) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, DataType, Operation, Comm,
                           Stream) = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, DataType, Comm, Stream) = nullptr;
  Result (*broadcast)(const void*, void*, std::size_t, DataType, int root, Comm, Stream) = nullptr;
  Result (*send)(const void*, std::size_t, DataType, int peer, Comm, Stream) = nullptr;
  Result (*receive)(void*, std::size_t, DataType, int peer, Comm, Stream) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Comm) = nullptr;

  /// Throws Unavailable, with NCCL's text, unless the call succeeded.
  void check(Result result, const char* call) const;
  /// Returns NCCL's texts for the result and for its last error.
  std::string error_text(Result result) const;
};

/// Returns a text such as "2.28.9".
std::string version_text(int version);

/// Returns the files to try, in order: TROUPE_NCCL alone when it is set; else libnccl.so.2 in the
/// loader's path, in the toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), and in pip's packages
/// (nvidia/nccl/lib in site-packages).
std::vector<std::string> candidates(const Environment& environment);

/// Returns the value of TROUPE_NCCL_SYNCHRONIZE. 1 synchronises the device around each operation,
/// to find the one that fails. Throws InvalidArgument for a value that is neither 0 nor 1.
bool synchronizes(const Environment& environment);

/// Opens the first candidate that loads. Throws Unavailable, with one sentence for each candidate,
/// when none loads, or when it lacks a function, is older than 2.19.3, or is of another major
/// version.
Library open_library(const std::vector<std::string>& candidates);

/// Returns the library of this process, which the first call opens. Throws as open_library(); the
/// next call then tries again.
const Library& library();

}  // namespace troupe::collective::nccl

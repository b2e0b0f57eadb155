#include "troupe/actors/collective/nccl/internal/library.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

namespace troupe::collective::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";

/// Adds the paths that match, in the order of their names.
void add_matches(const std::string& pattern, std::vector<std::string>& paths) {
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
}

void add_toolkit(const std::string& root, std::vector<std::string>& paths) {
  for (const char* folder : {"/lib64/", "/lib/", "/targets/x86_64-linux/lib/"})
    add_matches(root + folder + kFile, paths);
}

/// Adds the libraries that pip has installed below this prefix.
void add_pip(const std::string& prefix, std::vector<std::string>& paths) {
  for (const char* packages : {"/site-packages", "/dist-packages"})
    for (const char* python : {"/lib/python3.*", "/lib/python3"}) {
      std::string pattern = prefix;
      pattern.append(python).append(packages).append("/nvidia/nccl/lib/").append(kFile);
      add_matches(pattern, paths);
    }
}

template <class F>
void load(void* handle, const std::string& path, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(handle, name));
  if (function == nullptr)
    throw Unavailable(Code::unavailable, path + " is no NCCL that troupe knows: it has no " + name);
}

void load_all(void* handle, Library& nccl) {
  const auto get = [&](const char* name, auto& function) {
    load(handle, nccl.path, name, function);
  };
  get("ncclGetVersion", nccl.get_version);
  get("ncclGetUniqueId", nccl.get_unique_id);
  get("ncclCommInitRank", nccl.init_rank);
  get("ncclCommInitRankConfig", nccl.init_rank_config);
  get("ncclCommSplit", nccl.split);
  get("ncclCommFinalize", nccl.finalize);
  get("ncclCommDestroy", nccl.destroy);
  get("ncclCommAbort", nccl.abort);
  get("ncclCommGetAsyncError", nccl.async_error);
  get("ncclAllReduce", nccl.all_reduce);
  get("ncclReduceScatter", nccl.reduce_scatter);
  get("ncclAllGather", nccl.all_gather);
  get("ncclBroadcast", nccl.broadcast);
  get("ncclSend", nccl.send);
  get("ncclRecv", nccl.receive);
  get("ncclGroupStart", nccl.group_start);
  get("ncclGroupEnd", nccl.group_end);
  get("ncclGetErrorString", nccl.error_string);
  get("ncclGetLastError", nccl.last_error);
}

void check_version(Library& nccl) {
  nccl.check(nccl.get_version(&nccl.version), "ncclGetVersion");
  if (nccl.version >= kOldest && nccl.version < kBeforeMajorChange) return;
  throw Unavailable(Code::unavailable,
                    nccl.path + " is NCCL " + version_text(nccl.version) +
                        "; troupe needs 2.19.3 or later of version 2: name another in TROUPE_NCCL");
}

}  // namespace

void Library::check(Result result, const char* call) const {
  if (result == kSuccess) return;
  throw Unavailable(Code::unavailable, std::string(call) + ": " + error_text(result));
}

std::string Library::error_text(Result result) const {
  std::string why = error_string(result);
  const char* detail = last_error(nullptr);
  if (detail != nullptr && *detail != '\0') why += std::string(" (") + detail + ")";
  return why;
}

std::string version_text(int version) {
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> candidates(const Environment& environment) {
  const auto value = [&](const char* name) { return environment.text(name).value_or(""); };
  if (const std::string named = value("TROUPE_NCCL"); !named.empty()) return {named};
  std::vector<std::string> paths{kFile};
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = value(name); !root.empty()) add_toolkit(root, paths);
  add_toolkit("/usr/local/cuda", paths);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string root = value(name); !root.empty()) add_pip(root, paths);
  if (const std::string home = value("HOME"); !home.empty()) add_pip(home + "/.local", paths);
  add_pip("/usr/local", paths);
  add_pip("/usr", paths);
  return paths;
}

bool synchronizes(const Environment& environment) {
  return environment.choice("TROUPE_NCCL_SYNCHRONIZE", {"0", "1"}) == std::size_t{1};
}

Library open_library(const std::vector<std::string>& candidates) {
  std::string tried;
  for (const std::string& path : candidates) {
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* error = ::dlerror();
      tried += "; ";
      tried += error == nullptr ? path.c_str() : error;
      continue;
    }
    Library nccl;
    nccl.path = path;
    load_all(handle, nccl);
    check_version(nccl);
    return nccl;
  }
  throw Unavailable(Code::unavailable,
                    "NCCL is not there (name it in TROUPE_NCCL, or install nvidia-nccl)" + tried);
}

const Library& library() {
  // Makes operations of several communicators begin on a device in the order of their calls.
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  static const Library nccl = open_library(candidates(Environment()));
  return nccl;
}

}  // namespace troupe::collective::nccl

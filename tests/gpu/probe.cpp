// probe: tests whether NCCL works here, below all of troupe's own code.
//
//   probe --libraries            one JSON object: card, driver, runtime, NCCL; needs no device
//   ranks N probe                every kind of operation between N ranks, one JSON object for each
//   (by rank 0)
//
// Rank 0 writes NCCL's id into the file that TROUPE_NCCL_ID names. With TROUPE_NCCL_SYNCHRONIZE
// the device is synchronised around each operation. Exit code: 0; 1 with one line that says what
// failed; 77 without a device.
#include "tests/gpu/cuda_runtime.hpp"
#include "troupe/actors/collective/nccl/internal/library.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace nccl = troupe::collective::nccl;
using Clock = std::chrono::steady_clock;
constexpr int kNoDevice = 77;
constexpr auto kPatience = std::chrono::seconds(60);

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int print_libraries() {
  std::string nccl_version, runtime_version, driver_version;
  try {
    nccl_version = nccl::version_text(nccl::library().version);
  } catch (const troupe::Error& e) {
    std::fprintf(stderr, "probe: %s\n", e.what());
  }
  try {
    const troupe::gpu::CudaRuntime cuda = troupe::gpu::open_cuda_runtime();
    int version = 0;
    if (cuda.runtime_version(&version) == 0)
      runtime_version = troupe::gpu::cuda_version_text(version);
    if (cuda.driver_version(&version) == 0 && version != 0)
      driver_version = troupe::gpu::cuda_version_text(version);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "probe: %s\n", e.what());
  }
  std::printf(R"({"card":"%s","driver_cuda":"%s","runtime":"%s","nccl":"%s"})"
              "\n",
              troupe::gpu::card_name().c_str(), driver_version.c_str(), runtime_version.c_str(),
              nccl_version.c_str());
  return nccl_version.empty() || runtime_version.empty() ? 1 : 0;
}

/// Returns the id that rank 0 makes. The ranks share it through a file that is renamed into
/// place, so it appears whole.
nccl::UniqueId share_id(const nccl::Library& library, int rank, int world) {
  nccl::UniqueId id{};
  const char* file = std::getenv("TROUPE_NCCL_ID");
  if (world > 1 && file == nullptr) throw std::runtime_error("TROUPE_NCCL_ID is not set");
  if (rank == 0) {
    library.check(library.get_unique_id(&id), "ncclGetUniqueId");
    if (world == 1) return id;
    const std::string part = std::string(file) + ".part";
    std::ofstream(part, std::ios::binary).write(id.bytes, sizeof id.bytes);
    std::filesystem::rename(part, file);
    return id;
  }
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.bytes, sizeof id.bytes)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw std::runtime_error(std::string("rank 0 has left no id at ") + file);
}

class Probe {
 public:
  Probe(const nccl::Library& library, const troupe::gpu::CudaRuntime& cuda)
      : nccl_(library),
        cuda_(cuda),
        rank_(number("RANK", 0)),
        world_(number("WORLD_SIZE", 1)),
        synchronize_(std::getenv("TROUPE_NCCL_SYNCHRONIZE") != nullptr) {
    cuda_.check(cuda_.set_device(0), "cudaSetDevice");
    cuda_.check(cuda_.create_stream(&stream_), "cudaStreamCreate");
    const nccl::UniqueId id = share_id(nccl_, rank_, world_);
    const auto begun = Clock::now();
    nccl_.check(nccl_.init_rank(&comm_, world_, id, rank_), "ncclCommInitRank");
    report("init", 0, begun);
  }

  void run() {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20})
      for (int round = 0; round < 2; ++round) probe(count);  // the second round is warm
    nccl_.check(nccl_.destroy(comm_), "ncclCommDestroy");
  }

 private:
  /// Runs one operation of each kind on `count` elements of each rank.
  void probe(std::size_t count) {
    const auto ranks = static_cast<std::size_t>(world_);
    const double sum = world_ * (world_ + 1) / 2.0;
    const auto mine = [&](std::size_t) { return rank_ + 1.0; };
    expect(
        "all_reduce", count, count, mine, [&](std::size_t) { return sum; },
        [&](void* in, void* out) {
          return nccl_.all_reduce(in, out, count, nccl::f32, nccl::sum, comm_, stream_);
        });
    expect(
        "reduce_scatter", count * ranks, count, mine, [&](std::size_t) { return sum; },
        [&](void* in, void* out) {
          return nccl_.reduce_scatter(in, out, count, nccl::f32, nccl::sum, comm_, stream_);
        });
    expect(
        "all_gather", count, count * ranks, mine,
        [&](std::size_t i) {
          const std::size_t from = i / count;
          return static_cast<double>(from) + 1.0;
        },
        [&](void* in, void* out) {
          return nccl_.all_gather(in, out, count, nccl::f32, comm_, stream_);
        });
    expect(
        "broadcast", count, count, mine, [&](std::size_t) { return world_; },
        [&](void* in, void* out) {
          return nccl_.broadcast(in, out, count, nccl::f32, world_ - 1, comm_, stream_);
        });
    expect(
        "exchange", count, count, mine,
        [&](std::size_t) { return (rank_ + world_ - 1) % world_ + 1.0; },
        [&](void* in, void* out) { return exchange(in, out, count); });
  }

  /// Sends to the next rank and receives from the one before.
  nccl::Result exchange(void* in, void* out, std::size_t count) {
    nccl_.check(nccl_.group_start(), "ncclGroupStart");
    nccl_.check(nccl_.send(in, count, nccl::f32, (rank_ + 1) % world_, comm_, stream_), "ncclSend");
    nccl_.check(nccl_.receive(out, count, nccl::f32, (rank_ + world_ - 1) % world_, comm_, stream_),
                "ncclRecv");
    return nccl_.group_end();
  }

  void expect(const char* name, std::size_t in_count, std::size_t out_count,
              const std::function<double(std::size_t)>& input,
              const std::function<double(std::size_t)>& output,
              const std::function<nccl::Result(void*, void*)>& call) {
    std::vector<float> host(in_count);
    for (std::size_t i = 0; i < in_count; ++i) host[i] = static_cast<float>(input(i));
    void *in = nullptr, *out = nullptr;
    cuda_.check(cuda_.allocate(&in, in_count * sizeof(float)), "cudaMalloc");
    cuda_.check(cuda_.allocate(&out, out_count * sizeof(float)), "cudaMalloc");
    cuda_.check(cuda_.copy(in, host.data(), in_count * sizeof(float), kHostToDevice), "cudaMemcpy");
    if (synchronize_) cuda_.check(cuda_.synchronize(), "cudaDeviceSynchronize");
    const auto begun = Clock::now();
    nccl_.check(call(in, out), name);
    await(name);
    if (synchronize_) cuda_.check(cuda_.synchronize(), "cudaDeviceSynchronize");
    report(name, in_count * sizeof(float), begun);
    host.assign(out_count, -1.0f);
    cuda_.check(cuda_.copy(host.data(), out, out_count * sizeof(float), kDeviceToHost),
                "cudaMemcpy");
    for (std::size_t i = 0; i < out_count; ++i)
      if (host[i] != static_cast<float>(output(i)))
        throw std::runtime_error(std::string(name) + ": element " + std::to_string(i) + " is " +
                                 std::to_string(host[i]) + " and must be " +
                                 std::to_string(output(i)));
    cuda_.check(cuda_.release(in), "cudaFree");
    cuda_.check(cuda_.release(out), "cudaFree");
  }

  /// Waits for the stream. NCCL has no timeout of its own, and a failed operation never finishes
  /// on the stream.
  void await(const char* name) {
    const auto end = Clock::now() + kPatience;
    for (int state = cuda_.query(stream_); state != 0; state = cuda_.query(stream_)) {
      if (state != kNotReady) cuda_.check(state, name);
      nccl::Result error = nccl::kSuccess;
      nccl_.check(nccl_.async_error(comm_, &error), "ncclCommGetAsyncError");
      if (error != nccl::kSuccess && error != nccl::kInProgress) nccl_.check(error, name);
      if (Clock::now() >= end) throw std::runtime_error(std::string(name) + " does not end");
    }
  }

  void report(const char* name, std::size_t bytes, Clock::time_point begun) const {
    if (rank_ != 0) return;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
    std::printf(R"({"operation":"%s","ranks":%d,"bytes":%zu,"ms":%.3f})"
                "\n",
                name, world_, bytes, ms);
    std::fflush(stdout);
  }

  static constexpr int kHostToDevice = troupe::gpu::kHostToDevice;
  static constexpr int kDeviceToHost = troupe::gpu::kDeviceToHost;
  static constexpr int kNotReady = troupe::gpu::kNotReady;
  const nccl::Library& nccl_;
  const troupe::gpu::CudaRuntime& cuda_;
  int rank_, world_;
  bool synchronize_;
  troupe::gpu::Stream stream_ = nullptr;
  nccl::Comm comm_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string(argv[1]) == "--libraries") return print_libraries();
  if (troupe::gpu::card_name().empty()) {
    std::fprintf(stderr, "probe: there is no CUDA device here\n");
    return kNoDevice;
  }
  const troupe::gpu::CudaRuntime cuda = troupe::gpu::open_cuda_runtime();
  Probe(nccl::library(), cuda).run();
} catch (const std::exception& e) {
  std::fprintf(stderr, "probe: rank %d: %s\n", number("RANK", 0), e.what());
  return 1;
}

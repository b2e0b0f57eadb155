// collectives: runs every operation of Communicator between processes that share one device, and
// compares it with the same operation of a `shm` group.
//
//   ranks N collectives [--device cpu|cuda] [--largest N]   all operations, of several types, on 1,
//                                                           1,000 and N (a million) elements
//   collectives --threads N ...                             the ranks are threads: --device cpu and
//                                                           stand-in
//   ranks N collectives ... --then abort|mismatch           rank 0 aborts the group, or asks for
//                                                           another length than the others
//   ranks --dies R N collectives ... --then die --dies R    rank R kills itself
//
// Results of operations that only move data, and of minimum and maximum, must be equal to the
// bit. Sums must agree to the rounding of their type, and be equal on all ranks. Rank 0 prints a
// JSON object for each operation: the time of its second call, and whether its bits are those of
// `shm`. Exit code: 0; 1 with one line that names the difference; 2 for wrong usage; 77 without
// the device.
#include "tests/gpu/mesh.hpp"
#include "tests/gpu/program.hpp"
#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/philox/philox.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace troupe;
using collective::Buffer;
using collective::Communicator;
using collective::ConstBuffer;
using collective::Reduce;
using collective::Work;
using gpu::Arguments;
using kernels::DType;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;
/// An operation from `in` to `out`. An operation in place uses `out` alone, which begins as a
/// copy of the input.
using Call = std::function<Work(Communicator&, ConstBuffer in, Buffer out)>;

constexpr const char* kUsageText =
    "usage: ranks N collectives [--device cpu|cuda] [--threads N] [--then abort|mismatch|die] "
    "[--dies RANK] [--largest N]";
constexpr auto kPatience = std::chrono::seconds(10);  // timeout of an operation
constexpr double kBound = 20;                         // seconds for an operation that must fail
constexpr const char* kReason = "rank 0 gives up, as it was told to";

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

/// Returns numbers that depend on the rank and the type; whole numbers for 64 bits.
Bytes numbers(DType type, std::int64_t count, int rank) {
  std::vector<float> values(static_cast<std::size_t>(count));
  kernels::philox_normal(values.data(), count, 7, static_cast<std::uint64_t>(rank), 0, 0, 1);
  Bytes bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto whole = static_cast<std::int64_t>(values[i] * 1e6f);
    const std::uint16_t half = kernels::to_bf16(values[i]);
    if (type == DType::i64) std::memcpy(&bytes[i * 8], &whole, 8);
    if (type == DType::bf16) std::memcpy(&bytes[i * 2], &half, 2);
    if (type == DType::f32) std::memcpy(&bytes[i * 4], &values[i], 4);
  }
  return bytes;
}

double number(DType type, const Bytes& bytes, std::size_t i) {
  std::int64_t whole = 0;
  std::uint16_t half = 0;
  float value = 0;
  if (type == DType::i64) std::memcpy(&whole, &bytes[i * 8], 8);
  if (type == DType::bf16) std::memcpy(&half, &bytes[i * 2], 2);
  if (type == DType::f32) std::memcpy(&value, &bytes[i * 4], 4);
  if (type == DType::i64) return static_cast<double>(whole);
  return type == DType::bf16 ? kernels::from_bf16(half) : value;
}

/// Returns the tolerance for a sum of a few normal numbers.
double rounding_of(DType type) {
  if (type == DType::f32) return 1e-6;
  return type == DType::bf16 ? 2e-2 : 0;
}

class Comparison {
 public:
  Comparison(kernels::Device& device, std::unique_ptr<Communicator> host)
      : device_(device),
        reference_(host->split(0, host->rank())),
        tested_(collective::join_device_group(std::move(host), device)) {}
  Communicator& tested() { return *tested_; }
  kernels::Device& device() { return device_; }
  int rank() const { return reference_->rank(); }
  int size() const { return reference_->size(); }

  /// Runs the operation twice, since a first call costs more. Throws std::runtime_error where the
  /// results differ.
  void compare(const std::string& name, DType type, std::int64_t in, std::int64_t out,
               double tolerance, const Call& call) {
    const Bytes input = numbers(type, in, rank());
    Bytes expected = begin(input, type, out);
    call(*reference_, {input.data(), type, in}, {expected.data(), type, out}).wait();
    double seconds = 0;
    Bytes result;
    for (int i = 0; i < 2; ++i) result = on_device(input, type, in, out, call, seconds);
    for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i)
      check(name, type, expected, result, i, tolerance);
    if (tolerance > 0 && name.starts_with("all_reduce")) check_ranks(name, result);
    if (rank() == 0)
      std::printf(
          R"({"operation":"%s","type":"%s","ranks":%d,"bytes":%zu,"ms":%.3f,"bits_of_shm":%s})"
          "\n",
          name.c_str(), std::string(name_of(type)).c_str(), size(), input.size(), seconds * 1e3,
          result == expected ? "true" : "false");
  }

  /// Runs the operation on memory of the device.
  Bytes on_device(const Bytes& input, DType type, std::int64_t in, std::int64_t out,
                  const Call& call, double& seconds) {
    const kernels::Memory from = uploaded(input), to = uploaded(begin(input, type, out));
    const auto begun = Clock::now();
    call(*tested_, {from.data(), type, in}, {to.data(), type, out}).wait();
    seconds = seconds_since(begun);
    Bytes result(static_cast<std::size_t>(out * size_of(type)));
    device_.copy(device_.compute(), result.data(), to.data(), result.size());
    device_.compute().synchronize();
    return result;
  }

 private:
  static Bytes begin(const Bytes& input, DType type, std::int64_t out) {
    Bytes bytes(static_cast<std::size_t>(out * size_of(type)));
    std::memcpy(bytes.data(), input.data(), std::min(bytes.size(), input.size()));
    return bytes;
  }
  kernels::Memory uploaded(const Bytes& bytes) {
    kernels::Memory memory = device_.allocate(bytes.size());
    device_.copy(device_.compute(), memory.data(), bytes.data(), bytes.size());
    device_.compute().synchronize();
    return memory;
  }
  static void check(const std::string& name, DType type, const Bytes& expected, const Bytes& result,
                    std::size_t i, double tolerance) {
    const double a = number(type, result, i), b = number(type, expected, i);
    if (!(std::abs(a - b) <= tolerance * (1 + std::abs(b))))
      throw std::runtime_error(name + " of " + std::string(name_of(type)) + ": element " +
                               std::to_string(i) + " is " + std::to_string(a) + ", by shm " +
                               std::to_string(b));
  }
  void check_ranks(const std::string& name, const Bytes& result) {
    Bytes first = result;
    reference_->broadcast({first.data(), DType::u8, static_cast<std::int64_t>(first.size())}, 0)
        .wait();
    if (first != result) throw std::runtime_error(name + " gave other bits on rank 0");
  }

  kernels::Device& device_;
  std::unique_ptr<Communicator> reference_, tested_;
};

void reductions(Comparison& c, DType type, std::int64_t n) {
  const double tolerance = rounding_of(type);
  const auto all_reduce = [](Reduce reduce) -> Call {
    return [reduce](Communicator& group, ConstBuffer, Buffer out) {
      return group.all_reduce(out, reduce);
    };
  };
  c.compare("all_reduce.sum", type, n, n, tolerance, all_reduce(Reduce::sum));
  if (type != DType::i64)
    c.compare("all_reduce.mean", type, n, n, tolerance, all_reduce(Reduce::mean));
  c.compare("all_reduce.max", type, n, n, 0, all_reduce(Reduce::max));
  c.compare("all_reduce.min", type, n, n, 0, all_reduce(Reduce::min));
  c.compare("reduce_scatter", type, n * c.size(), n, tolerance,
            [](Communicator& group, ConstBuffer in, Buffer out) {
              return group.reduce_scatter(in, out, Reduce::sum);
            });
}

void moves(Comparison& c, DType type, std::int64_t n) {
  c.compare(
      "all_gather", type, n, n * c.size(), 0,
      [](Communicator& group, ConstBuffer in, Buffer out) { return group.all_gather(in, out); });
  for (int root = 0; root < c.size(); ++root)
    c.compare("broadcast", type, n, n, 0, [root](Communicator& group, ConstBuffer, Buffer out) {
      return group.broadcast(out, root);
    });
  const int up = (c.rank() + 1) % c.size(), down = (c.rank() + c.size() - 1) % c.size();
  c.compare("exchange", type, n, n, 0, [=](Communicator& group, ConstBuffer in, Buffer out) {
    return group.exchange(in, up, out, down);
  });
  c.compare("group", type, n, n, 0, [=](Communicator& group, ConstBuffer in, Buffer out) {
    return group.group([&](collective::Transfers& transfers) {
      transfers.receive(out, down);
      transfers.send(in, up);
    });
  });
  if (c.size() == 1) return;  // alone: a rank cannot receive from itself later
  c.compare("send", type, n, n, 0, [=](Communicator& group, ConstBuffer in, Buffer out) {
    if (group.rank() == 0) return group.send(in, 1);
    return group.rank() == 1 ? group.receive(out, 0) : Work();
  });
}

/// Tests split: the ranks of one parity, the last one first; and one rank alone without a group.
void splits(Comparison& c) {
  const auto parts = c.tested().split(c.rank() % 2, -c.rank());
  if (parts == nullptr) throw std::runtime_error("a rank with a color has no group");
  const int members = (c.size() + 1 - c.rank() % 2) / 2;
  if (parts->size() != members || parts->rank() != (c.size() - 1 - c.rank()) / 2)
    throw std::runtime_error("split made a group of " + std::to_string(parts->size()) +
                             " with this rank at " + std::to_string(parts->rank()));
  double sum = 0, unused = 0;
  for (int rank = c.rank() % 2; rank < c.size(); rank += 2) sum += rank + 1;
  const float mine = static_cast<float>(c.rank() + 1);
  Bytes input(sizeof mine);
  std::memcpy(input.data(), &mine, sizeof mine);
  const Bytes result = c.on_device(
      input, DType::f32, 1, 1,
      [&](Communicator&, ConstBuffer, Buffer out) { return parts->all_reduce(out); }, unused);
  if (number(DType::f32, result, 0) != sum)
    throw std::runtime_error("the sum over a split is wrong");
  const bool is_out = c.tested().split(c.rank() == 0 ? -1 : 0, 0) == nullptr;
  if (is_out != (c.rank() == 0)) throw std::runtime_error("a negative color has a group");
  if (c.rank() == 0)
    std::printf(R"({"operation":"split","ranks":%d})"
                "\n",
                c.size());
}

int all_operations(Comparison& c, std::int64_t largest) {
  for (const DType type : {DType::f32, DType::bf16, DType::i64})
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{1000}, largest}) {
      reductions(c, type, n);
      moves(c, type, n);
    }
  splits(c);
  c.tested().barrier();
  return gpu::kPassed;
}

/// Expects that an operation that cannot succeed ends in one of these codes, with these words,
/// within the bound. The next operation must end so, too.
int end_badly(Comparison& c, std::int64_t count, const std::vector<Code>& codes,
              const std::string& words) {
  for (int i = 0; i < 2; ++i) {
    const auto begun = Clock::now();
    Code code{};
    std::string message;
    double unused = 0;
    try {
      c.on_device(
          numbers(DType::f32, count, 0), DType::f32, count, count,
          [](Communicator& group, ConstBuffer, Buffer out) { return group.all_reduce(out); },
          unused);
      throw std::runtime_error("an operation ended well that could not");
    } catch (const Error& error) {
      code = error.code();
      message = error.message();
    }
    const double seconds = seconds_since(begun);
    std::printf(R"({"operation":"error","rank":%d,"error":"%s","seconds":%.3f})"
                "\n",
                c.rank(), std::string(name_of(code)).c_str(), seconds);
    if (std::find(codes.begin(), codes.end(), code) == codes.end() || seconds > kBound ||
        message.find(words) == std::string::npos)
      throw std::runtime_error("it ended in " + std::string(name_of(code)) + ": " + message);
  }
  return gpu::kPassed;
}

struct Options {
  std::string device, then;
  int dies = -1, largest = 0;
};

int run_rank(const Options& options, std::unique_ptr<Communicator> host) {
  kernels::Device device = gpu::open_device(options.device);
  Comparison c(device, std::move(host));
  if (options.then.empty()) return all_operations(c, options.largest);
  c.tested().barrier();
  if (options.then == "abort") {
    if (c.rank() == 0) c.tested().abort(kReason);
    return end_badly(c, 1000, {Code::cancelled}, kReason);
  }
  if (options.then == "mismatch")
    return end_badly(c, c.rank() == 0 ? 1000 : 1001, {Code::invalid_argument}, "");
  if (c.rank() == options.dies) std::raise(SIGKILL);
  return end_badly(c, 1000, {Code::worker_died, Code::timed_out, Code::cancelled}, "");
}

int run(Arguments& words) {
  Options options{words.text("--device", "cpu"), words.text("--then", "")};
  options.dies = words.number("--dies", -1, 0, 63);
  options.largest = words.number("--largest", 1 << 20, 1, 1 << 28);
  const int threads = words.number("--threads", 0, 1, 64);
  words.finish();
  const bool is_known = options.then.empty() || options.then == "abort" ||
                        options.then == "mismatch" || (options.then == "die" && options.dies >= 0);
  if (!is_known) Arguments::refuse("--then is '" + options.then + "'");
  return gpu::on_ranks(threads, kPatience, [&](std::unique_ptr<Communicator> host) {
    return run_rank(options, std::move(host));
  });
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run("collectives", kUsageText, argc, argv, run);
}

#include "tests/gpu/program.hpp"

#include "tests/device/host_device.hpp"
#include "troupe/kernels/device/cuda.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace troupe::gpu {
namespace {

constexpr std::size_t kStandInBytes = std::size_t{8} << 30;  // address space

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoDevice : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int tell(const char* name, const char* what, int code) {
  std::fprintf(stderr, "%s: rank %d: %s\n", name, variable("RANK", 0), what);
  return code;
}

}  // namespace

Arguments::Arguments(int argc, char** argv) : words_(argv + 1, argv + argc) {}

std::string Arguments::word() {
  if (words_.empty() || words_.front().starts_with("--")) return {};
  std::string first = words_.front();
  words_.erase(words_.begin());
  return first;
}

bool Arguments::flag(const std::string& name) {
  const auto at = std::find(words_.begin(), words_.end(), name);
  if (at == words_.end()) return false;
  words_.erase(at);
  return true;
}

std::string Arguments::text(const std::string& name, const std::string& otherwise) {
  const auto at = std::find(words_.begin(), words_.end(), name);
  if (at == words_.end()) return otherwise;
  if (at + 1 == words_.end()) refuse(name + " needs a value");
  std::string value = at[1];
  words_.erase(at, at + 2);
  return value;
}

int Arguments::number(const std::string& name, int otherwise, int least, int greatest) {
  const std::string value = text(name, "");
  if (value.empty()) return otherwise;
  int result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size() || result < least ||
      result > greatest)
    refuse(name + " is '" + value + "', and may be " + std::to_string(least) + " to " +
           std::to_string(greatest));
  return result;
}

void Arguments::finish() const {
  if (!words_.empty()) refuse("no option " + words_.front());
}

void Arguments::refuse(const std::string& why) {
  throw Refused(why);
}

kernels::Device open_device(const std::string& kind) {
  if (kind == "cpu") return kernels::cpu_device();
  if (kind == "stand-in") return kernels::HostDevice({.bytes = kStandInBytes}).device();
  if (kind != "cuda")
    Arguments::refuse("--device is '" + kind + "', and may be cpu, cuda or stand-in");
  if (kernels::cuda_table() == nullptr) throw NoDevice(kernels::cuda_status());
  return kernels::cuda_device();
}

int variable(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int run(const char* name, const char* usage, int argc, char** argv,
        const std::function<int(Arguments&)>& body) {
  try {
    Arguments words(argc, argv);
    return body(words);
  } catch (const Refused& error) {
    tell(name, error.what(), kUsage);
    std::fprintf(stderr, "%s\n", usage);
    return kUsage;
  } catch (const NoDevice& error) {
    return tell(name, error.what(), kSkipped);
  } catch (const std::exception& error) {
    return tell(name, error.what(), kFailed);
  }
}

}  // namespace troupe::gpu

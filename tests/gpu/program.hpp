// What the programs of the stages share: their arguments, their device, their end.
//
//     int main(int argc, char** argv) {
//       return troupe::gpu::run("golden", "usage: golden ...", argc, argv, [](Arguments& words) {
//         Device device = troupe::gpu::open_device(words.text("--device", "cpu"));
//         words.finish();
//         ...
//         return 0;
//       });
//     }
//
// Exit codes: what the body returns; 1 for an exception, with one line; 2 for wrong usage; 77
// without the device.
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::gpu {

inline constexpr int kPassed = 0, kFailed = 1, kUsage = 2, kSkipped = 77;

/// Pairs "--name value" in any order, and words without a name before them.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  /// The first word; empty when an option comes first. For programs with parts.
  std::string word();
  bool flag(const std::string& name);
  std::string text(const std::string& name, const std::string& otherwise);
  int number(const std::string& name, int otherwise, int least, int greatest);
  /// Refuses what nobody has asked for.
  void finish() const;
  /// Ends the program with the sentence and the usage.
  [[noreturn]] static void refuse(const std::string& why);

 private:
  std::vector<std::string> words_;
};

/// "cpu"; "cuda": the first device that this process may see; "stand-in": that of tests/device,
/// whose memory the host does not reach.
kernels::Device open_device(const std::string& kind);

/// The value of a launcher's variable; `otherwise` where it is not set.
int variable(const char* name, int otherwise);

/// Calls the body and turns its end into an exit code.
int run(const char* name, const char* usage, int argc, char** argv,
        const std::function<int(Arguments&)>& body);

}  // namespace troupe::gpu

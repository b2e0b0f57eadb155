// What the programs of the stages share: arguments, device and exit code.
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
// Exit codes: the result of the body; 1 for an exception, with one line; 2 for wrong usage; 77
// without the device.
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::gpu {

inline constexpr int kPassed = 0, kFailed = 1, kUsage = 2, kSkipped = 77;

/// Arguments: pairs "--name value" in any order, and before them words without a name.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  /// Returns the next word, or an empty text when an option comes first. It is for programs with
  /// several commands.
  std::string word();
  bool flag(const std::string& name);
  std::string text(const std::string& name, const std::string& otherwise);
  int number(const std::string& name, int otherwise, int least, int greatest);
  /// Ends the program with the usage if an argument was not read.
  void finish() const;
  /// Ends the program with the sentence and the usage.
  [[noreturn]] static void refuse(const std::string& why);

 private:
  std::vector<std::string> words_;
};

/// Opens a device. "cpu"; "cuda": the first device that this process may see; "stand-in": the
/// device of tests/device, whose memory the host cannot reach.
kernels::Device open_device(const std::string& kind);

/// Returns the value of a launcher's variable, or `otherwise` where it is not set.
int variable(const char* name, int otherwise);

/// Calls the body and turns its end into an exit code.
int run(const char* name, const char* usage, int argc, char** argv,
        const std::function<int(Arguments&)>& body);

}  // namespace troupe::gpu

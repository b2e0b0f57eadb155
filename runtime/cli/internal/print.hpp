/// Prints the document that `--json` asks for; the verbs of cli/ share it.
#pragma once

#include "troupe/runtime/base/json.hpp"

#include <cstdio>

namespace troupe::cli {

inline void print(const Json& document) {
  std::printf("%s\n", document.dump(2).c_str());
}

}  // namespace troupe::cli

/// Prints the document that `--json` asks for; the verbs of cli/ share it.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace troupe::cli {

inline void print(const nlohmann::json& document) {
  const std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace troupe::cli

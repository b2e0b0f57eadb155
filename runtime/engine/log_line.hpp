/// A line that a task or actor has written, as the driver of its job gets it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

struct LogLine {
  std::string text;               ///< without its newline; any bytes
  std::string name;               ///< of the function or the actor's class, without parameters
  std::string node;               ///< name of the node, like "node-0"
  std::int64_t pid = 0;           ///< of the process on that node
  bool is_error = false;          ///< it went to standard error
  std::int64_t time_unix_ns = 0;  ///< when the node has read it
};

namespace detail {
using OnLog = std::function<void(const LogLine&)>;
}

}  // namespace troupe

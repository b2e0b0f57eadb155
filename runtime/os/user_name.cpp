#include "troupe/runtime/os/user_name.hpp"

#include <unistd.h>
#include <fstream>

namespace troupe::os {

std::string user_name() {
  const std::string id = std::to_string(geteuid());
  std::ifstream users("/etc/passwd");
  for (std::string line; std::getline(users, line);) {  // name:password:id:...
    const auto name_ends = line.find(':');
    const auto id_begins = line.find(':', name_ends + 1) + 1;
    if (name_ends == std::string::npos || name_ends == 0 || id_begins == 0) continue;
    if (line.compare(id_begins, id.size() + 1, id + ":") == 0) return line.substr(0, name_ends);
  }
  return "uid " + id;
}

}  // namespace troupe::os

// Prints the floors of this machine as a table, or as JSON with --json FILE ("-": standard
// output).
#include "net_floor.hpp"
#include "ring_floor.hpp"

#include <cstdio>
#include <cstring>
#include <exception>

int main(int argc, char** argv) {
  const bool json = argc == 3 && std::strcmp(argv[1], "--json") == 0;
  if (argc != 1 && !json) {
    std::fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
    return 2;
  }
  try {
    auto rows = troupe::bench::ring_rows();
    for (auto& row : troupe::bench::net_rows()) rows.push_back(std::move(row));
    if (!json) {
      std::fputs(troupe::bench::to_table(rows).c_str(), stdout);
      return 0;
    }
    std::FILE* out = std::strcmp(argv[2], "-") == 0 ? stdout : std::fopen(argv[2], "w");
    if (out == nullptr) {
      std::perror(argv[2]);
      return 1;
    }
    const bool written = std::fputs(troupe::bench::to_json(rows).c_str(), out) >= 0;
    return std::fclose(out) == 0 && written ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

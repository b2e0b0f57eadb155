// The chaos program: real clusters under load and faults of every kind. See `chaos --help`.
#include "tests/chaos/chaos.hpp"
#include "tests/chaos/load.hpp"
#include "tests/paths.hpp"

#include <unistd.h>
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace {

constexpr const char* kUsage =
    "usage: chaos [--minutes M] [--rounds N] [--seed S] [--report FILE] [--only KIND,...]\n"
    "             [--nodes N] [--floor OPERATIONS] [--bound SECONDS] [--busy PERCENT]\n"
    "             [--canary lost|wrong|hung|quiet] [--verbose]\n\n"
    "Real clusters under load, with seeded faults, for M minutes (1) or N clusters.\n"
    "--floor: operations a second below which the load proves nothing (20).\n"
    "--bound: seconds within which all works again after a fault (60).\n"
    "--busy: that much of each CPU is taken from everybody all the time.\n"
    "--canary: the load itself goes wrong, which must be noticed.\n"
    "Exit codes: 0 all was well; 1 something was lost, duplicated, hung or wrong; 2 bad usage.\n\n"
    "kinds:";

[[noreturn]] void bad_usage(const std::string& why) {
  std::fprintf(stderr, "chaos: %s\n%s", why.c_str(), kUsage);
  for (const std::string& kind : chaos::Chaos::kinds()) std::fprintf(stderr, " %s", kind.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, n > 0 ? static_cast<std::size_t>(n) : 0);
}

double number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0))
    bad_usage(flag + ": '" + text + "' is no number");
  return value;
}

chaos::Options options_of(int argc, char** argv) {
  chaos::Options options;
  const auto kinds = chaos::Chaos::kinds();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (flag == "--help") bad_usage("tries how much a cluster takes");
    if (i + 1 == argc) bad_usage(flag + " needs a value, or is not known");
    const std::string value = argv[++i];
    if (flag == "--minutes")
      options.minutes = number(flag, value);
    else if (flag == "--seed")
      options.seed = static_cast<std::uint64_t>(number(flag, value));
    else if (flag == "--nodes")
      options.nodes = static_cast<int>(number(flag, value));
    else if (flag == "--bound")
      options.bound = static_cast<int>(number(flag, value));
    else if (flag == "--busy")
      options.busy = static_cast<int>(number(flag, value));
    else if (flag == "--rounds")
      options.rounds = static_cast<int>(number(flag, value));
    else if (flag == "--floor")
      options.floor = static_cast<int>(number(flag, value));
    else if (flag == "--report")
      options.report = value;
    else if (flag == "--canary")
      options.canary = value;
    else if (flag == "--only") {
      std::istringstream names(value);
      for (std::string name; std::getline(names, name, ',');) {
        if (std::find(kinds.begin(), kinds.end(), name) == kinds.end())
          bad_usage("no kind of fault is called '" + name + "'");
        options.only.push_back(name);
      }
    } else {
      bad_usage("'" + flag + "' is not known");
    }
  }
  if (options.busy > 100) bad_usage("--busy is 0 to 100");
  if (options.nodes < 3 || options.nodes > 8) bad_usage("--nodes is 3 to 8");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 4 && std::strcmp(argv[1], "--load") == 0) {
    chaos::LoadOptions load;
    load.address = argv[2];
    load.ledger = argv[3];
    load.seed = std::strtoull(argv[4], nullptr, 10);
    load.canary = argc > 5 ? argv[5] : "";
    return chaos::run_load(argc, argv, load);
  }
  chaos::Options options = options_of(argc, argv);
  options.program = own_path();
  options.command = paths::command();
  options.shim = paths::chaos_shim();
  std::signal(SIGPIPE, [](int) {});  // unlike SIG_IGN, not inherited by children
  chaos::adopt_orphans();
  chaos::Chaos chaos(std::move(options));
  return chaos.run();
}

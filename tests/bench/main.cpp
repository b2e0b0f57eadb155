// Runs suites of benchmarks and compares troupe with what the machine can do without it.
//   bench [core|objects|remote|control|train|tune|operate]... [--json FILE] [--quick] [--rounds N] [--only NAME]
//   [--list]          (control includes remote)
//   bench --curves FILE.svg [--json FILE] [--quick]
// Exit code: 0 measured, 1 something failed, 2 a wrong argument, 3 more than a tenth of the rows
// are noisy.
#include "curves.hpp"
#include "suite.hpp"

#include "troupe/troupe.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace troupe::bench;

struct Arguments {
  std::vector<Suite*> suites;
  RunOptions run;
  std::string json;
  std::string curves;
  bool list = false;
};

int wrong(const char* program, const std::string& what) {
  std::fprintf(
      stderr,
      "%s: %s\nusage: %s [core|objects|remote|control|train|tune|operate]... [--json FILE] "
      "[--quick] "
      "[--rounds N] [--only NAME] [--list]\n       %s --curves FILE.svg [--json FILE] [--quick]\n",
      program, what.c_str(), program, program);
  return 2;
}

Suite* suite_named(std::string_view name) {
  for (Suite* suite : suites())
    if (suite->name() == name) return suite;
  return nullptr;
}

/// Adds a suite once. `control` includes `remote`, since only a cluster of several nodes has a
/// control.
void add(std::vector<Suite*>& suites, Suite* suite) {
  if (suite == &control_suite()) add(suites, &remote_suite());
  if (std::find(suites.begin(), suites.end(), suite) == suites.end()) suites.push_back(suite);
}

/// Returns the first error, or an empty text.
std::string parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool takes_value =
        flag == "--json" || flag == "--rounds" || flag == "--only" || flag == "--curves";
    if (takes_value && i + 1 == argc) return flag + " needs a value";
    const std::string value = takes_value ? argv[++i] : "";
    if (flag == "--quick") {
      arguments.run.quick = true;
      arguments.run.rounds = 1;
    } else if (flag == "--list") {
      arguments.list = true;
    } else if (flag == "--json") {
      arguments.json = value;
    } else if (flag == "--curves") {
      arguments.curves = value;
    } else if (flag == "--only") {
      arguments.run.only = value;
    } else if (flag == "--rounds") {
      const auto end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, arguments.run.rounds);
      if (parsed.ec != std::errc{} || parsed.ptr != end || arguments.run.rounds < 1 ||
          arguments.run.rounds > 1000)
        return "--rounds takes a number from 1 to 1000, not '" + value + "'";
    } else if (Suite* suite = suite_named(flag)) {
      add(arguments.suites, suite);
    } else {
      return flag.rfind("--", 0) == 0
                 ? "unknown flag " + flag
                 : "no suite '" + flag +
                       "'; there are core, objects, remote, control, train, tune and operate";
    }
  }
  if (arguments.suites.empty()) arguments.suites.push_back(&core_suite());
  return "";
}

bool write_file(const std::string& path, const std::string& text) {
  std::FILE* out = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  if (out == nullptr) {
    std::perror(path.c_str());
    return false;
  }
  const bool written = std::fputs(text.c_str(), out) >= 0;
  const bool flushed = out == stdout ? std::fflush(out) == 0 : std::fclose(out) == 0;
  return written && flushed;
}

int draw(const Arguments& arguments) {
  const std::vector<Curve> curves = measure_curves(arguments.run.quick);
  std::fputs(to_text(curves).c_str(), stdout);
  const bool written = write_file(arguments.curves, to_svg(curves)) &&
                       (arguments.json.empty() || write_file(arguments.json, to_json(curves)));
  return written ? 0 : 1;
}

int measure(const Arguments& arguments) {
  std::vector<Judged> rows;
  for (Suite* suite : arguments.suites)
    for (Judged& row : run(*suite, arguments.run)) rows.push_back(std::move(row));
  if (rows.empty())
    throw troupe::InvalidArgument(troupe::Code::invalid_argument,
                                  "no row's name contains '" + arguments.run.only + "'");
  if (arguments.json != "-") std::fputs(to_report(rows).c_str(), stdout);
  if (!arguments.json.empty() && !write_file(arguments.json, to_report_json(rows))) return 1;
  if (arguments.run.quick) return 0;
  if (!too_noisy(rows)) return 0;
  std::fprintf(stderr,
               "more than a tenth of %zu rows are noisy: the machine does something else "
               "meanwhile\n",
               rows.size());
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    troupe::enter(argc, argv);
    Arguments arguments;
    if (const std::string what = parse(argc, argv, arguments); !what.empty())
      return wrong(argv[0], what);
    if (!arguments.curves.empty()) return draw(arguments);
    if (!arguments.list) return measure(arguments);
    for (const Suite* suite : arguments.suites)
      for (const RowInfo& row : suite->rows()) std::printf("%s\n", row.name);
    return 0;
  } catch (const troupe::InvalidArgument& error) {
    return wrong(argv[0], error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

// report_check <report.json> <names>: proves that the report is valid JSON, names its machine and
// build, and has every row with every member. It sets no limits on speed.
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

namespace {

/// Returns the first error, or an empty text.
std::string check(const nlohmann::json& report, std::set<std::string> missing) {
  if (!report.at("machine").contains("cpus")) return "the machine has no cpus";
  if (!report.at("build").contains("version")) return "the build has no version";
  for (const auto& row : report.at("rows")) {
    const std::string name = row.at("name").get<std::string>();
    for (const char* text : {"placement", "unit", "goal"})
      if (!row.at(text).is_string()) return name + ": " + text + " is no text";
    for (const char* number : {"value", "floor", "ratio", "spread"})
      if (!row.at(number).is_number()) return name + ": " + number + " is no number";
    if (!(row.at("value").get<double>() > 0)) return name + ": nothing was measured";
    if (!row.at("pass").is_null() && !row.at("pass").is_boolean()) return name + ": pass";
    missing.erase(name);
  }
  return missing.empty() ? "" : "no row named " + *missing.begin();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::set<std::string> names;
  std::ifstream list(argv[2]);
  for (std::string name; std::getline(list, name);) names.insert(name);
  try {
    std::ifstream in(argv[1]);
    const std::string wrong =
        names.empty() ? "no names were given" : check(nlohmann::json::parse(in), names);
    if (wrong.empty()) return 0;
    std::fprintf(stderr, "%s: %s\n", argv[1], wrong.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
  }
  return 1;
}

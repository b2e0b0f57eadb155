// Tests a host whose language has a decimal comma, set by setlocale() and by
// std::locale::global(). Every file has the same bytes, and the logs can be read.
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/space.hpp"
#include "troupe/tune/views/report.hpp"
#include "troupe/tune/views/tables.hpp"
#include "troupe/tune/views/terminal.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <locale>

namespace troupe::tune::locale_test {
namespace {

namespace fs = std::filesystem;

/// Returns the C library's file of numbers for the C locale, with a comma. The file begins with
/// offsets of fields: the first field is the decimal point, the fourth is the same as a wide
/// character.
std::string with_comma(std::string numbers) {
  std::uint32_t at[6] = {};
  if (numbers.size() < sizeof at) return {};
  std::memcpy(at, numbers.data(), sizeof at);
  const std::size_t point = at[2];
  const std::size_t wide = at[5];
  if (point >= numbers.size() || wide >= numbers.size() || numbers[point] != '.' ||
      numbers[wide] != '.')
    return {};
  numbers[point] = numbers[wide] = ',';
  return numbers;
}

struct Comma final : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class Locale : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "troupe-locale-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directories(folder_ / "comma");
    for (const char* name : {"C.utf8", "C.UTF-8"}) {
      std::ifstream file(fs::path("/usr/lib/locale") / name / "LC_NUMERIC", std::ios::binary);
      const std::string numbers{std::istreambuf_iterator<char>(file), {}};
      if (file.is_open())
        std::ofstream(folder_ / "comma" / "LC_NUMERIC", std::ios::binary) << with_comma(numbers);
    }
  }
  void TearDown() override {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    fs::remove_all(folder_);
  }
  /// Installs the locale; returns whether this machine accepts it.
  bool speak() {
    ::setenv("LOCPATH", folder_.c_str(), 1);
    std::locale::global(std::locale(std::locale::classic(), new Comma));
    if (std::setlocale(LC_NUMERIC, "comma") == nullptr) return false;
    char text[8];
    std::snprintf(text, sizeof text, "%.1f", 0.5);
    return std::strcmp(text, "0,5") == 0;
  }

  fs::path folder_;
};

struct Hp {
  double rate = 0.5;
  std::string kind;
};

std::string everything() {
  auto space = Space<Hp>{}
                   .with(&Hp::rate, log_uniform(1.5e-4, 1234.5))
                   .with("kind", &Hp::kind, choice("0.25", "1000000"))
                   .start_at({.rate = 0.125, .kind = "0.25"});
  const ExperimentOptions options{.goal = minimize,
                                  .trials = 4,
                                  .scheduler = Pbt{.perturb_every = 3, .quantile = 0.25},
                                  .searcher = Tpe{.startup_trials = 1},
                                  .max_steps = 1200,
                                  .target = 1e-9,
                                  .time_limit = std::chrono::milliseconds(1'500'500),
                                  .starts = space.starts()};
  Experiment e(space.search(), options);
  Simulation s;
  s.weights = {12345.678};
  s.train = [](std::vector<double>& w, const Point& p, long) {
    return w[0] *= 1 - 0.01 / (1 + p[0]);
  };
  Simulator sim(e, s);
  sim.run(400);
  std::string text;
  for (const std::string& line : sim.log()) text += line + "\n";
  const auto again = Experiment::restore(space.search(), options, sim.log());
  text += again.ok() ? "restored\n" : again.error().message();
  Board board = e.board();
  board.trials[0].metrics = {{"lr", 0.5}, {"tokens", 1234567.0}};
  text += trials_jsonl(board) + trials_csv(board) + progress_csv(board) + curves_svg(board) +
          report_html(board) + summary(board) + progress_line(board) + show(choices({"a"})) +
          show_number(1234567.5) + show_number(0.5F) + show(options.scheduler);
  for (const std::string& line : table(board, {})) text += line + "\n";
  const auto shown =
      Space<Hp>{}.with(&Hp::rate, choice(0.5, 1234567.25)).search().parameters[0].domain.options;
  for (const std::string& option : shown) text += option + "\n";
  try {
    static_cast<void>(space.from_point({0.5, 12345678}));
  } catch (const InvalidArgument& error) {
    text += error.message();
  }
  return text + tensorboard_events(board.trials[0], board, 1.7e9);
}

TEST_F(Locale, NoLanguageChangesAByte) {
  const std::string before = everything();
  EXPECT_NE(before.find("restored\n"), std::string::npos);
  if (!speak()) GTEST_SKIP() << "the C library has no C.utf8 to make a language of";
  const std::string after = everything();
  EXPECT_TRUE(before == after)
      << before.size() << " bytes and " << after.size() << ", first at "
      << std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first -
             before.begin();
}

}  // namespace
}  // namespace troupe::tune::locale_test

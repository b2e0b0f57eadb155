// The main of each group's executable. It runs the program that its first argument names.
#include "tests/programs/program.hpp"

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <locale>

namespace programs {
namespace {

/// All programs of the executable, in no particular order. Constructors in several files fill the
/// list before main.
std::vector<const Program*>& all() {
  static std::vector<const Program*> programs;
  return programs;
}

/// Returns the text in one line, with tabs and line ends spelled out.
std::string spelled(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out;
}

int list() {
  for (const Program* program : all()) {
    const Right& right = program->right();
    std::printf("%s\t%g\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", program->name(), right.seconds,
                right.exit_code, right.nodes, right.everywhere ? 1 : 0, right.plain_only ? 1 : 0,
                std::string(right.except).c_str(), spelled(right.says).c_str(),
                spelled(right.expect).c_str());
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

/// Passes on what the program writes to std::cout and remembers it, for surroundings in which
/// standard output is closed.
class Remembering final : public std::streambuf {
 public:
  explicit Remembering(std::streambuf& to) : to_(&to) {}
  const std::string& text() const noexcept { return text_; }

 private:
  int_type overflow(int_type c) override {
    if (c == traits_type::eof()) return c;
    text_ += static_cast<char>(c);
    to_->sputc(static_cast<char>(c));
    return c;
  }
  std::streamsize xsputn(const char* from, std::streamsize n) override {
    text_.append(from, static_cast<std::size_t>(n));
    to_->sputn(from, n);
    return n;
  }
  int sync() override {
    to_->pubsync();
    return 0;
  }
  std::streambuf* to_;
  std::string text_;
};

/// Makes streams that are created from here on write numbers with a comma.
struct Comma final : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// Sets the locale as a program does that honours its user's language.
void honour_locale() {
  const char* name = std::getenv("PROGRAMS_LOCALE");
  if (name == nullptr) return;
  if (*name != '\0' && std::setlocale(LC_ALL, name) == nullptr)
    std::fprintf(stderr, "programs: no locale %s\n", name);
  std::locale::global(std::locale(std::locale::classic(), new Comma));
  if (*name != '\0') std::setlocale(LC_ALL, name);  // global() of a nameless locale leaves C's
}

/// Handles the signals that a batch system sends to all processes of a job.
void handle_signals() {
  if (std::getenv("PROGRAMS_SIGNALS") == nullptr) return;
  struct sigaction action{};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGHUP, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

int main_of(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--list") == 0) return list();
  const Program* wanted = nullptr;
  for (const Program* program : all())
    if (argc > 1 && std::strcmp(program->name(), argv[1]) == 0) wanted = program;
  if (wanted == nullptr) {
    std::fprintf(stderr, "usage: %s --list | PROGRAM [--troupe-...]\n", argv[0]);
    return 2;
  }
  std::copy(argv + 2, argv + argc + 1, argv + 1);
  --argc;
  honour_locale();
  handle_signals();
  Remembering remembering(*std::cout.rdbuf());
  std::streambuf* before = std::cout.rdbuf(&remembering);
  const int code = wanted->run(argc, argv);
  std::cout.flush();
  std::cout.rdbuf(before);
  if (const char* file = std::getenv("PROGRAMS_OUTPUT"); file != nullptr)
    std::ofstream(file, std::ios::binary) << remembering.text();
  return code;
}

}  // namespace

Program::Program(const char* name, const Right& right, Body body)
    : name_(name), right_(right), body_(body) {
  all().push_back(this);
}
Program::Program(const char* name, const Right& right, CountingBody body)
    : name_(name), right_(right), counting_(body) {
  all().push_back(this);
}
Program::Program(const char* name, const Right& right, Main main)
    : name_(name), right_(right), main_(main) {
  all().push_back(this);
}

int Program::run(int& argc, char** argv) const {
  if (main_ != nullptr) return main_(argc, argv);
  if (counting_ != nullptr) return troupe::run(argc, argv, counting_);
  return troupe::run(argc, argv, body_);
}

}  // namespace programs

int main(int argc, char** argv) {
  return programs::main_of(argc, argv);
}

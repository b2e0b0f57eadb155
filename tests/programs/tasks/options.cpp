// Proves the options of tasks, and that encoded values can be decoded.
#include "tests/programs/program.hpp"

#include <limits>
#include <thread>

namespace tasks_options {
namespace {

using namespace std::chrono_literals;
using namespace troupe::literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

int same(int x) {
  return x;
}
int brief(int x) {
  std::this_thread::sleep_for(1ms);
  return x;
}

void bound(Context& ctx) {
  // The result of with() owns its options, so it can be kept and used many times.
  const auto half = [&] {
    const std::string name = "a name that goes away";
    return ctx.with({.name = name, .cpus = 0.5});
  }();
  int sum = 0;
  for (int i = 0; i < 10; ++i) sum += ctx.get(half.submit<same>(i));
  for (const int x : ctx.get(half.map<same>(std::vector<int>{1, 2, 3}))) sum += x;
  troupe::TaskOptions o;
  o.max_retries = -1;
  o.memory = 1_MiB;
  o.second_attempt = true;
  sum += ctx.get(ctx.with(o).submit<brief>(100));
  for (const double cpus : {0.0, 0.0001, 0.3333, 1.0})
    sum += ctx.get(ctx.with({.cpus = cpus}).submit<same>(1));
  std::cout << sum << '\n';
}
/// Proves that bound options can be kept, and that all options of a task are accepted.
const Program options{"options_kept_and_used_again", {.expect = "155\n"}, bound};

void refused(Context& ctx) {
  const auto told = [](auto&& call) {
    try {
      call();
      return std::string("accepted");
    } catch (const troupe::Error& e) {
      return std::string(troupe::name_of(e.code()));
    }
  };
  std::cout << told([&] { ctx.with({.cpus = -0.5}); }) << '\n'
            << told([&] { ctx.with({.gpus = std::numeric_limits<double>::quiet_NaN()}); }) << '\n'
            << told([&] { ctx.with({.resources = {{"x", -1}}}); }) << '\n'
            << told([&] {
                 troupe::Resources many;
                 for (int i = 0; i < 9; ++i) many.add({"x", 1});
               })
            << '\n';
}
/// Proves that senseless options are refused when they are given.
const Program refuses{
    "options_that_make_no_sense",
    {.expect = "invalid_argument\ninvalid_argument\ninvalid_argument\ninvalid_argument\n"},
    refused};

void more_than_there_are(Context& ctx) {
  // There is far more work than CPUs, in two shapes, and all of it runs.
  const double cpus = ctx.cluster().nodes.at(0).cpus;
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 200; ++i) {
    refs.push_back(ctx.submit<brief>(1));
    if (i % 10 == 0) refs.push_back(ctx.with({.cpus = cpus}).submit<brief>(1));
  }
  int sum = 0;
  for (const int x : ctx.get(refs)) sum += x;
  std::cout << sum << '\n';
}
/// Proves that tasks with unequal demands all run when they wait for the same CPUs.
const Program shapes{
    "two_shapes_of_tasks", {.expect = "220\n", .seconds = 20}, more_than_there_are};

struct Point {
  int x = 0;
  double y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Place {
  int from = 0;
  double to = 0;
};
void codec(Context&) {
  const std::vector<Point> points{{1, 0.5}, {2, -0.5}};
  const auto bytes = troupe::encode(points);
  std::cout << (troupe::decode<std::vector<Point>>(bytes) == points)
            << (bytes.size() == troupe::encoded_size(points))
            << (troupe::fingerprint<Point> == troupe::fingerprint<Place>)
            << troupe::can_cross<Point> << troupe::can_cross<int*>;
  int refused = 0;
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) try {
      static_cast<void>(troupe::decode<std::vector<Point>>(troupe::BlobView(bytes.data(), cut)));
    } catch (const troupe::InvalidArgument&) {
      ++refused;
    }
  std::cout << (refused == static_cast<int>(bytes.size())) << '\n';
}
/// Proves encode and decode, and that every truncated encoding is refused.
const Program codecs{"values_as_bytes", {.expect = "111101\n", .nodes = 1}, codec};

}  // namespace
}  // namespace tasks_options

// Proves every bounded wait at the extremes of what a duration can express.
#include "tests/programs/program.hpp"

#include <stdexcept>
#include <thread>

namespace {
namespace durations {

using namespace std::chrono_literals;
using troupe::Duration;

int soon(int x) {
  return x;
}
int late(int x) {
  std::this_thread::sleep_for(300ms);
  return x;
}
std::vector<troupe::Ref<int>> refs(troupe::Context& ctx, int n) {
  std::this_thread::sleep_for(50ms);
  std::vector<troupe::Ref<int>> made;
  for (int i = 0; i < n; ++i) made.push_back(ctx.put(i));
  return made;
}
struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
};

/// No limit, or so long that its end cannot be computed from now.
constexpr Duration kEndless[] = {troupe::forever, troupe::forever - 1ns, Duration(100 * 365 * 24h)};
/// Only a look.
constexpr Duration kNone[] = {Duration(0), Duration(-1), Duration(-1h), Duration::min()};

/// Proves get, view, wait and try_get with endless and with past durations.
const programs::Program waits_at_their_ends{
    "waits_at_their_ends",
    {.expect = "5 5 2 1\n5 5 2 1\n5 5 2 1\nlooked\nlooked\nlooked\nlooked\n", .seconds = 20},
    [](troupe::Context& ctx) {
      for (const Duration timeout : kEndless) {
        std::cout << ctx.get(ctx.submit<late>(5), timeout) << ' ';
        std::cout << *ctx.view(ctx.submit<soon>(5), timeout) << ' ';
        std::cout << ctx.wait({ctx.submit<late>(1), ctx.submit<soon>(2)},
                              {.count = 2, .timeout = timeout})
                         .ready.size()
                  << ' ';
        std::cout << ctx.try_get(ctx.submit<late>(1), timeout).value() << std::endl;
      }
      for (const Duration timeout : kNone) {
        auto ref = ctx.submit<late>(1);
        bool only_looked = ctx.wait({ref}, {.timeout = timeout}).ready.empty();
        const auto none = ctx.try_get(ref, timeout);
        only_looked = only_looked && !none && none.error().code() == troupe::Code::timed_out;
        try {
          ctx.get(ref, timeout);
          only_looked = false;
        } catch (const troupe::TimedOut&) {
        }
        only_looked = only_looked && ctx.get(ref) == 1 && ctx.get(ref, timeout) == 1;
        only_looked = only_looked && ctx.get(std::vector{ref, ref}, timeout).size() == 2;
        // A value whose refs come apart from it.
        const auto many = ctx.submit<refs>(1000);
        only_looked = only_looked && !ctx.try_get(many, timeout).ok();
        ctx.get(many);
        only_looked = only_looked && ctx.get(many, timeout).size() == 1000;
        std::cout << (only_looked ? "looked" : "waited") << std::endl;
      }
    }};

/// Proves put, detach and restart windows with endless and with negative durations.
const programs::Program options_at_their_ends{
    "options_at_their_ends",
    {.expect = "kept\nkept\nkept\nrefused\nrefused\nrefused\n1\n1\n1\n1\n", .seconds = 20},
    [](troupe::Context& ctx) {
      for (const Duration timeout : kEndless) {
        const auto ref = ctx.put(5, {.replicas = 1, .timeout = timeout});
        ctx.detach(ref, "number", timeout);
        std::cout << (ctx.forget_object("number") ? "kept" : "lost") << std::endl;
      }
      for (const Duration window : {Duration(-1), Duration(-1h), Duration::min()}) try {
          ctx.with({.max_restarts = 1, .restart_window = window}).spawn<Counter>();
          std::cout << "made" << std::endl;
        } catch (const troupe::InvalidArgument&) {
          std::cout << "refused" << std::endl;
        }
      for (const Duration window :
           {Duration(0), Duration(1), troupe::forever - 1ns, Duration(troupe::forever)}) {
        auto counter = ctx.with({.max_restarts = 1, .restart_window = window}).spawn<Counter>();
        std::cout << ctx.get(counter.call<&Counter::add>(1)) << std::endl;
      }
    }};

}  // namespace durations
}  // namespace

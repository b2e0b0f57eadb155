// Proves that a Context and all handles outlive their session without harm: their calls end in
// Unavailable.
#include "tests/programs/program.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace processes_late_threads {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;

int twice(int x) {
  return 2 * x;
}
struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
};
std::vector<double> many() {
  return std::vector<double>(2'000, 1.0);  // in shared memory
}

/// Returns how the call ends.
std::string end_of(const std::function<void()>& call) {
  try {
    call();
    return "a value";
  } catch (const troupe::Unavailable&) {
    return "Unavailable";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// A thread that repeats a call until the call fails.
class Repeating {
 public:
  explicit Repeating(std::function<void()> call)
      : thread_([this, call = std::move(call)] {
          do {
            end_ = end_of(call);
            begun_ = true;
            begun_.notify_all();
          } while (end_ == "a value");
        }) {}
  void await_first() const { begun_.wait(false); }
  std::string end() {
    thread_.join();
    return end_;
  }

 private:
  std::string end_;
  std::atomic<bool> begun_{false};
  std::thread thread_;
};

/// Proves that threads may use the session while it ends, and that the body's exit code stays.
const Program during_the_end{
    "threads_use_a_session_that_ends", {.expect = "7 Unavailable\n"}, [](int& argc, char** argv) {
      std::vector<std::unique_ptr<Repeating>> all;
      const int code = troupe::run(argc, argv, [&all](Context& ctx) {
        const auto actor = ctx.spawn<Counter>();
        const auto repeat = [&all](std::function<void()> call) {
          all.push_back(std::make_unique<Repeating>(std::move(call)));
        };
        repeat([ctx] { (void)ctx.put(1); });
        repeat([ctx] { (void)ctx.put(many()); });
        repeat([ctx] { (void)ctx.get(ctx.submit<twice>(1)); });
        repeat([ctx] { (void)ctx.wait({ctx.submit<twice>(1)}); });
        repeat([ctx] { (void)ctx.cluster(); });
        repeat([ctx, actor] { (void)ctx.get(actor.call<&Counter::add>(1)); });
        for (const auto& one : all) one->await_first();
        return 7;
      });
      std::string ends = "Unavailable";
      for (const auto& one : all)
        if (const std::string end = one->end(); end != "Unavailable") ends = end;
      std::cout << code << ' ' << ends << '\n';
      return 0;
    }};

/// Proves that each verb ends in Unavailable after the session.
const Program after_the_end{
    "each_verb_after_the_session", {.expect = "0 of 17 differ\n"}, [](int& argc, char** argv) {
      std::unique_ptr<Context> kept;
      std::unique_ptr<troupe::Actor<Counter>> actor;
      std::unique_ptr<troupe::Builder<int>> builder;
      Ref<int> ref;
      Ref<std::vector<double>> large;
      troupe::run(argc, argv, [&](Context& ctx) {
        kept = std::make_unique<Context>(ctx);
        actor = std::make_unique<troupe::Actor<Counter>>(ctx.spawn<Counter>());
        builder = std::make_unique<troupe::Builder<int>>(ctx.create<int>(10'000));
        ref = ctx.submit<twice>(1);
        (void)ctx.get(ref);
        large = ctx.put(many());
      });
      const Context& ctx = *kept;
      for (int& element : *builder) element = 1;
      const std::vector<std::function<void()>> verbs{
          [&] { (void)ctx.put(1); },
          [&] { (void)ctx.put(many()); },
          [&] { (void)ctx.create<int>(10); },
          [&] { (void)builder->seal(); },
          [&] { (void)ctx.get(ref); },
          [&] { (void)ctx.try_get(ref).value(); },
          [&] { (void)ctx.view(large); },
          [&] { (void)ctx.wait({ref}); },
          [&] { (void)ctx.submit<twice>(1); },
          [&] { (void)ctx.submit<twice>(ref); },
          [&] { (void)ctx.spawn<Counter>(); },
          [&] { (void)ctx.find<Counter>("nobody"); },
          [&] { (void)actor->call<&Counter::add>(1); },
          [&] { ctx.detach(ref, "late"); },
          [&] { (void)ctx.find_object<int>("late"); },
          [&] { (void)ctx.cluster(); },
          [&] { (void)Context::current(); },
      };
      int differ = 0;
      for (const auto& verb : verbs)
        if (const std::string end = end_of(verb); end != "Unavailable") {
          ++differ;
          std::cerr << (&verb - verbs.data()) << ": " << end << '\n';
        }
      std::cout << differ << " of " << verbs.size() << " differ\n";
      return 0;
    }};

}  // namespace
}  // namespace processes_late_threads

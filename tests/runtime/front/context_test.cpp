/// Tests the functions of Context: options, wait, as_completed, all forms of get, views,
/// builders, and finding actors.
#include "tests/runtime/front/inline_engine.hpp"

#include <gtest/gtest.h>
#include <map>

namespace outer {
static int hidden(int x) {
  return -x;
}  // callable_test.cpp has another
}  // namespace outer

namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;
using troupe::testing::InlineEngine;

int twice(int x) {
  return 2 * x;
}
void nothing() {}
struct NetError : std::runtime_error {
  using runtime_error::runtime_error;
};
struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
};

TEST(Options, reach_the_engine_whole) {
  InlineEngine engine;
  const Context ctx = engine.context();
  {
    const std::string name = "job";
    auto bound = ctx.with({.name = name,
                           .cpus = 2,
                           .memory = troupe::Bytes{1024},
                           .resources = {{"tpu", 1.5}},
                           .placement = troupe::Placement::spread,
                           .labels = {{"zone", "a"}},
                           .max_retries = 7,
                           .retry_on = troupe::errors<NetError, std::bad_alloc>()});
    bound.submit<twice>(1);
  }
  const auto& request = engine.last_request();
  EXPECT_EQ(request.name, "job");
  EXPECT_EQ(request.cpus, 2);
  EXPECT_EQ(request.memory.count, 1024u);
  EXPECT_EQ(request.resources, (std::vector<std::pair<std::string, double>>{{"tpu", 1.5}}));
  EXPECT_EQ(request.placement, troupe::detail::Request::Placement::spread);
  EXPECT_EQ(request.labels, (std::vector<std::pair<std::string, std::string>>{{"zone", "a"}}));
  EXPECT_EQ(request.max_retries, 7);
  EXPECT_EQ(request.retry_on,
            (std::vector<std::string>{typeid(NetError).name(), typeid(std::bad_alloc).name()}));

  ctx.with({.max_restarts = 3}).spawn<Counter>(1);
  EXPECT_EQ(engine.last_request().max_restarts, 3);
  for (const troupe::Duration window : {troupe::forever, troupe::Duration(0)}) {
    ctx.with({.restart_window = window}).spawn<Counter>(1);
    EXPECT_EQ(engine.last_request().restart_window, window);
  }
  for (const troupe::Duration window : {troupe::Duration(-1), troupe::Duration::min()})
    EXPECT_THROW(ctx.with({.restart_window = window}).spawn<Counter>(1), troupe::InvalidArgument);
  ctx.with({.gpus = 0.5}).spawn<Counter>(1);
  EXPECT_EQ(engine.last_request().gpus, 0.5);
  EXPECT_EQ(engine.last_request().cpus, std::nullopt) << "1 for a task, none for an actor";
  ctx.with({.cpus = 1}).spawn<Counter>(1);
  EXPECT_EQ(engine.last_request().cpus, 1);
  ctx.with({.placement = troupe::Placement::on({1, 1}, true)}).submit<twice>(1);
  EXPECT_TRUE(engine.last_request().soft);
  EXPECT_EQ(engine.last_request().node, (troupe::NodeId{1, 1}));
  troupe::TaskOptions o;
  o.cpus = 4;
  ctx.with(o).map<twice>(std::vector<int>{1});
  EXPECT_EQ(engine.last_request().cpus, 4);
  EXPECT_THROW(ctx.with({.cpus = -1}), troupe::InvalidArgument);
  EXPECT_THROW(ctx.with({.get_if_exists = true}), troupe::InvalidArgument);
  EXPECT_THROW(ctx.with({.max_retries = 0, .second_attempt = true}), troupe::InvalidArgument);
}

TEST(Entries, static_functions_of_one_name_in_another_file_stay_apart) {
  InlineEngine engine;
  EXPECT_EQ(engine.context().get(engine.context().submit<::outer::hidden>(5)), -5);
}

TEST(Get, comes_in_several_forms) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Ref<int> one = ctx.put(1);
  EXPECT_EQ(ctx.get(one), 1);
  EXPECT_EQ(ctx.get(one), 1);  // a second get gives the same
  EXPECT_EQ(ctx.get(one, 2s), 1);
  EXPECT_EQ(ctx.get(ctx.map<twice>(std::vector<int>{1, 2, 3})), (std::vector<int>{2, 4, 6}));
  const auto [a, b, c] = ctx.get(one, ctx.put("x"), ctx.submit<nothing>());
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, "x");
  EXPECT_EQ(c, std::monostate{});
  EXPECT_EQ(*ctx.get(ctx.put(std::make_unique<int>(5))), 5);
  EXPECT_THROW(ctx.get(engine.promise<int>(), 0s), troupe::TimedOut);
  EXPECT_EQ(ctx.try_get(engine.promise<int>(), 0s).error().code(), troupe::Code::timed_out);
  ctx.get(std::vector<Ref<void>>{ctx.submit<nothing>()});
  const Ref<Ref<int>> nested = ctx.put(one);
  EXPECT_EQ(ctx.get(ctx.get(nested)), 1);
}

TEST(Put, takes_replicas_from_one_on) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.get(ctx.put(7, {.replicas = 2, .timeout = 1s})), 7);
  troupe::Builder<int> two = ctx.create<int>(2);
  two[0] = two[1] = 3;
  EXPECT_EQ(ctx.view(std::move(two).seal({.replicas = 2}))->size(), 2u);
  EXPECT_THROW(ctx.put(7, {.replicas = 0}), troupe::InvalidArgument);
  EXPECT_THROW(ctx.put(7, {.replicas = 1025}), troupe::InvalidArgument);
}

TEST(Names, lead_to_values_of_their_type) {
  InlineEngine engine;
  Context ctx = engine.context();
  const Ref<std::vector<int>> weights = ctx.put(std::vector<int>{1, 2, 3});
  ctx.detach(weights, "weights");
  const auto found = ctx.find_object<std::vector<int>>("weights");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, weights);
  EXPECT_FALSE(ctx.find_object<std::vector<int>>("bias"));
  EXPECT_THROW(ctx.find_object<std::vector<double>>("weights"), troupe::InvalidArgument);
  EXPECT_THROW(ctx.detach(ctx.put(1), "weights"), troupe::InvalidArgument);
  EXPECT_TRUE(ctx.forget_object("weights"));
  EXPECT_FALSE(ctx.forget_object("weights"));
  EXPECT_EQ(ctx.get(*found).size(), 3u) << "a ref keeps it";
}

TEST(Locations, are_one_for_each_ref) {
  InlineEngine engine;
  Context ctx = engine.context();
  const auto where =
      ctx.locations(std::vector<troupe::AnyRef>{ctx.put(1), engine.promise<double>()});
  ASSERT_EQ(where.size(), 2u);
  EXPECT_EQ(where[0].nodes, std::vector{ctx.node()});
  EXPECT_EQ(where[1].state, troupe::ObjectLocation::State::pending);
}

TEST(Wait, gives_exactly_count_in_order_of_completion_and_keeps_the_rest_in_order) {
  InlineEngine engine;
  const Context ctx = engine.context();
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 5; ++i) refs.push_back(engine.promise<int>());
  engine.keep_promise(refs[3], 33);
  engine.break_promise(refs[1], troupe::Error(troupe::Code::object_lost, "gone"));
  engine.keep_promise(refs[0], 0);
  {
    auto [ready, pending] = ctx.wait(refs, {.count = 2});
    EXPECT_EQ(ready, (std::vector<Ref<int>>{refs[3], refs[1]}));  // a ref that failed is ready
    EXPECT_EQ(pending, (std::vector<Ref<int>>{refs[0], refs[2], refs[4]}));
  }
  {
    auto [ready, pending] = ctx.wait(refs, {.count = 5, .timeout = 0s});
    EXPECT_EQ(ready.size(), 3u);
    EXPECT_EQ(pending.size(), 2u);
  }
  engine.keep_promise(refs[2], 2);
  engine.keep_promise(refs[4], 4);
  EXPECT_EQ(ctx.wait(refs, {.count = 100}).ready.size(), 5u);
  EXPECT_TRUE(ctx.wait(std::vector<Ref<int>>{}, {.count = 1}).ready.empty());
  EXPECT_TRUE(ctx.wait(refs, {.count = 0}).ready.empty());
  EXPECT_EQ(ctx.wait({refs[1], refs[0]}, {.count = 1}).pending, std::vector<Ref<int>>{refs[0]});
}

TEST(Wait, counts_a_ref_as_often_as_it_is_named) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Ref<int> first = engine.promise<int>(), second = engine.promise<int>();
  engine.keep_promise(first, 1);
  auto [ready, pending] = ctx.wait({second, first, second, first}, {.count = 2});
  EXPECT_EQ(ready, (std::vector<Ref<int>>{first, first}));
  EXPECT_EQ(pending, (std::vector<Ref<int>>{second, second}));
  EXPECT_EQ(ctx.wait({first, second, first}, {.count = 3, .timeout = 0s}).ready.size(), 2u);
}

TEST(Wait, takes_refs_of_different_types) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const std::vector<troupe::AnyRef> refs{ctx.put(1), ctx.put("x"), engine.promise<double>()};
  auto [ready, pending] = ctx.wait(refs, {.count = 2});
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(ctx.get(ready[0].as<int>()), 1);
  EXPECT_EQ(ctx.get(ready[1].as<std::string>()), "x");
}

TEST(AsCompleted, goes_in_order_of_completion) {
  InlineEngine engine;
  const Context ctx = engine.context();
  std::vector<Ref<int>> refs{engine.promise<int>(), engine.promise<int>(), engine.promise<int>()};
  refs.push_back(ctx.submit<twice>(20));
  engine.keep_promise(refs[2], 2);
  engine.keep_promise(refs[0], 0);
  std::vector<int> seen;
  for (auto& ref : ctx.as_completed(refs)) {
    seen.push_back(ctx.get(ref));
    if (seen.size() == 3) engine.keep_promise(refs[1], 1);
  }
  EXPECT_EQ(seen, (std::vector<int>{2, 0, 40, 1}));
}

TEST(View, shows_in_place_and_pins) {
  InlineEngine engine;
  const Context ctx = engine.context();
  troupe::View<std::vector<double>> kept = [&] {
    return ctx.view(ctx.put(std::vector<double>(1000, 0.5)));  // the Ref is gone, but the pin stays
  }();
  double sum = 0;
  for (double x : kept) sum += x;
  EXPECT_EQ(sum, 500);
  EXPECT_EQ(kept.size(), 1000u);
  static_assert(std::is_same_v<decltype(*kept), std::span<const double>>);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kept.data()) % 64, 0u);

  sum = 0;
  for (double x : *ctx.view(ctx.put(std::vector<double>(1000, 0.25))))
    sum += x;  // the temporary lives through the loop
  EXPECT_EQ(sum, 250);
  int letters = 0;
  for (char c : *ctx.view(ctx.put("hello"))) letters += c == 'l' ? 1 : 0;
  EXPECT_EQ(letters, 2);
  EXPECT_EQ(*ctx.view(ctx.put("text")), "text");

  int total = 0;
  for (auto& [word, n] : *ctx.view(ctx.put(std::map<std::string, int>{{"a", 1}, {"b", 2}})))
    total += n;
  EXPECT_EQ(total, 3);
  EXPECT_EQ(ctx.view(ctx.put(std::map<std::string, int>{{"a", 1}}))->at("a"), 1);
  EXPECT_EQ(*ctx.view(ctx.put(7)), 7);
}

TEST(Builder, writes_in_place) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto builder = ctx.create<float>(100'000);
  for (std::size_t i = 0; i < builder.size(); ++i) builder[i] = 1;
  const Ref<troupe::Array<float>> ref = builder.seal();
  const auto view = ctx.view(ref);
  EXPECT_EQ(view.size(), 100'000u);
  EXPECT_EQ(view[99'999], 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data()) % 64, 0u);
  EXPECT_EQ(ctx.get(ctx.submit([](std::span<const float> s) { return s.size(); }, ref)), 100'000u);
  EXPECT_THROW(builder.seal(), troupe::InvalidArgument);
  auto empty = ctx.create<float>(0);
  EXPECT_TRUE(ctx.get(empty.seal()).empty());
}

TEST(Put, takes_text_and_large_values) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Ref<std::string> text = ctx.put("literal");
  EXPECT_EQ(ctx.get(text), "literal");
  const std::vector<int> large(10'000, 3);
  EXPECT_EQ(ctx.get(ctx.put(large)), large);
  const std::vector<int> part{1, 2, 3};
  const Ref<std::vector<int>> copied = ctx.put(std::span<const int>(part).first(2));
  EXPECT_EQ(ctx.get(copied), (std::vector<int>{1, 2}));
}

TEST(Actors, are_found_by_name_and_class_and_killed) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto counter = ctx.with({.name = "c", .max_restarts = 0}).spawn<Counter>(1);
  EXPECT_EQ(ctx.find<Counter>("c"), counter);
  EXPECT_FALSE(ctx.find<NetError>("c"));
  EXPECT_FALSE(ctx.find<Counter>("d"));
  const auto same = ctx.with({.name = "c", .get_if_exists = true}).spawn<Counter>(5);
  EXPECT_EQ(same, counter);
  ctx.kill(counter);
  EXPECT_THROW(ctx.get(counter.call<&Counter::add>(1)), troupe::ActorDied);
  EXPECT_THROW(troupe::Actor<Counter>{}.call<&Counter::add>(1), troupe::InvalidArgument);
}

TEST(Context, says_where_it_is) {
  InlineEngine engine;
  const Context ctx = engine.context();
  EXPECT_EQ(ctx.cluster().nodes.at(0).name, "inline");
  EXPECT_EQ(ctx.node(), (troupe::NodeId{1, 1}));
  EXPECT_EQ(ctx.gpu_ids(), (std::vector<int>{0, 3}));
}

TEST(Refs, count_and_release) {
  InlineEngine engine;
  const Context ctx = engine.context();
  Ref<int> outlives;
  {
    const Ref<std::vector<Ref<int>>> outer = ctx.put(std::vector<Ref<int>>{ctx.put(1), ctx.put(2)});
    EXPECT_EQ(engine.live_objects(), 3);
    outlives = ctx.get(outer)[1];
  }
  EXPECT_EQ(engine.live_objects(), 1);
  EXPECT_EQ(ctx.get(outlives), 2);
}

TEST(Refs, do_nothing_after_the_end_and_say_so_when_used_without_one) {
  Ref<int> left;
  {
    InlineEngine engine;
    left = engine.context().put(1);
  }
  left = {};
  EXPECT_THROW(Context::current(), troupe::Unavailable);
}

int nodes_seen_by_a_library() {
  return static_cast<int>(Context::current().cluster().nodes.size());
}

TEST(CurrentContext, is_the_one_of_the_process_for_a_function_that_was_given_none) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const Ref<int> put = Context::current().put(7);
  EXPECT_EQ(ctx.get(put), 7);
  EXPECT_EQ(ctx.get(ctx.submit<nodes_seen_by_a_library>()),
            static_cast<int>(ctx.cluster().nodes.size()));
}

}  // namespace

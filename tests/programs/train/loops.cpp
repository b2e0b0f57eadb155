// Proves training loops: what ranks share, report, save and restore, and how a run ends.
#include "tests/programs/program.hpp"
#include "troupe/train/train.hpp"

#include <csignal>
#include <numeric>
#include <stdexcept>

namespace {
namespace loops {

namespace train = troupe::train;

struct Numbers {
  std::vector<double> values;
  std::uint64_t size() const { return values.size(); }
  std::vector<double> batch(std::span<const std::uint64_t> indices) const {
    std::vector<double> chosen;
    for (const std::uint64_t i : indices) chosen.push_back(values[i]);
    return chosen;
  }
};
Numbers numbers() {
  Numbers made;
  for (int i = 0; i < 12; ++i) made.values.push_back(i);
  return made;
}

/// Adds up its batches.
struct Total {
  double sum = 0;
  long batches = 0;
};

void add_up(train::Worker& w, int epochs, troupe::Ref<Numbers> data) {
  Total total;
  w.restore(total);
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& batch : w.shard(data, {.batch = 4})) {
      if (w.rank() == 1 && w.step() == 4 && w.incarnation() == 0) ::raise(SIGKILL);
      auto sum = static_cast<float>(std::accumulate(batch.begin(), batch.end(), 0.0));
      w.all_reduce_mean(std::span(&sum, 1));
      total.sum += static_cast<double>(sum) * w.world();
      ++total.batches;
      w.checkpoint(total);
      w.report({.step = w.step(), .loss = 100 - total.sum, .extra = {{"sum", total.sum}}});
    }
}
void add_up_and_say(troupe::Context& ctx, const train::FitOptions& options) {
  const train::Fit fit = train::fit<add_up>(ctx, options, 2, ctx.put(numbers()));
  Total total;
  fit.restore(total);
  std::cout << fit.last().step << " steps, sum " << fit.last().extra.at("sum") << ", restored "
            << total.sum << " of " << total.batches << " batches, " << fit.restarts()
            << " restarts\n";
}

/// Proves that a loop of one worker shards, reports, saves and restores.
const programs::Program one_worker{
    "one_worker",
    {.expect = "6 steps, sum 132, restored 132 of 6 batches, 0 restarts\n", .seconds = 15},
    [](troupe::Context& ctx) { add_up_and_say(ctx, {.workers = 1}); }};

/// Proves that a run with a killed worker restarts and ends with the same result.
const programs::Program a_killed_worker{
    "a_killed_worker",
    {.expect = "6 steps, sum 132, restored 132 of 6 batches, 1 restarts\n", .seconds = 20},
    [](troupe::Context& ctx) { add_up_and_say(ctx, {.workers = 2, .max_restarts = 1}); }};

/// Runs a loop and prints the error in which it ends.
template <auto loop>
void ends_in(troupe::Context& ctx, const train::FitOptions& options) {
  try {
    train::fit<loop>(ctx, options);
    std::cout << "no error\n";
  } catch (const troupe::Error& error) {
    const std::string text = error.message();
    std::cout << name_of(error.code()) << ": " << text.substr(0, text.find(": all_reduce"))
              << std::endl;
  }
}

void sums(train::Worker& w, std::size_t odd) {
  for (int i = 0; i < 12; ++i) {
    w.next_step();
    std::vector<float> values(w.rank() == 1 && w.step() == 10 ? odd : 100);
    w.all_reduce_mean(values);
  }
}
void differs(train::Worker& w) {
  sums(w, 7);
}
/// Proves that ranks with vectors of different sizes get an error that names step and rank.
const programs::Program sizes_that_differ{
    "sizes_that_differ",
    {.expect = "task_failed, invalid_argument: at step 10, rank 1 gave another size\n",
     .seconds = 15},
    [](troupe::Context& ctx) {
      try {
        train::fit<differs>(ctx, {.workers = 2, .max_restarts = 5});
      } catch (const troupe::TaskFailed& error) {
        const std::string text = error.message();
        std::cout << "task_failed, " << name_of(error.cause()->code()) << ':'
                  << (text.find(" at step 10: all_reduce") != text.npos ? " at step 10," : text)
                  << (text.find("rank 1 made another call or gave another size") != text.npos
                          ? " rank 1 gave another size"
                          : text)
                  << '\n';
      }
    }};

/// Only rank 0 makes another call in step 3. The weights are divided, so it waits for rank 1.
void calls_alone(train::Worker& w, const std::string& call) {
  if (w.incarnation() > 0) throw std::runtime_error("the loop was restarted");
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(train::models::mlp({.in = 4, .hidden = {8}, .classes = 3}), w.layout(),
                       w.mesh(), device, {});
  engine.initialize(1);
  std::vector<float> input(8, 0.5f);
  std::vector<std::int32_t> classes = {0, 2};
  const std::vector<train::MicroBatch> batch = {
      {.input = {input.data(), train::DType::f32, {2, 4}},
       .targets = {classes.data(), train::DType::i32, {2}}}};
  while (w.step() < 5) {
    w.next_step();
    if (w.rank() == 0 && w.step() == 3) {
      if (call == "checkpoint()") w.checkpoint(engine);
      if (call == "snapshot()") engine.snapshot(0);
      if (call == "all_reduce_sum()") w.all_reduce_sum(1.0);
      if (call == "evaluate()") engine.evaluate(batch);
    }
    engine.step(batch);
  }
}
/// Proves that a call of one rank alone ends the run at once, without a restart, and by its name.
const programs::Program a_call_of_one_rank{
    "a_call_of_one_rank",
    {.expect = "rank 0 called checkpoint() while rank 1 called step()\n"
               "rank 0 called snapshot() while rank 1 called step()\n"
               "rank 0 called all_reduce_sum() while rank 1 called step()\n"
               "rank 0 called evaluate() while rank 1 called step()\n",
     .seconds = 25},
    [](troupe::Context& ctx) {
      for (const char* call : {"checkpoint()", "snapshot()", "all_reduce_sum()", "evaluate()"})
        try {
          train::fit<calls_alone>(ctx, {.workers = 2, .layout = {.zero = 1}, .max_restarts = 3},
                                  std::string(call));
          std::cout << "went on\n";
        } catch (const troupe::TaskFailed& error) {
          const std::string text = error.message();
          const std::size_t begin = text.find("rank 0 called");
          std::cout << text.substr(begin == text.npos ? 0 : begin,
                                   text.rfind(": every rank") - begin)
                    << std::endl;
        }
    }};

void throws(train::Worker& w) {
  for (int i = 0; i < 12; ++i) {
    w.next_step();
    if (w.rank() == 1 && w.step() == 10) throw std::runtime_error("a bug of mine");
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
  }
}
/// Proves that an exception of one rank ends the run with its worker, step and text.
const programs::Program a_loop_that_throws{
    "a_loop_that_throws",
    {.expect = "task_failed: train: the loop of worker 1 threw at step 10: a bug of mine\n",
     .seconds = 15},
    [](troupe::Context& ctx) { ends_in<throws>(ctx, {.workers = 2, .max_restarts = 5}); }};

void leaves(train::Worker& w) {
  for (int i = 0; i < 12; ++i) {
    w.next_step();
    if (w.rank() == 1 && w.step() == 10) return;
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
  }
}
/// Proves that a rank that returns before the others is named.
const programs::Program a_rank_that_returns_early{
    "a_rank_that_returns_early",
    {.expect = "task_failed: train: worker 1 returned from the loop at step 10, and worker 0 waits "
               "for it: every rank must make the same calls in the same order\n",
     .seconds = 15},
    [](troupe::Context& ctx) { ends_in<leaves>(ctx, {.workers = 2, .max_restarts = 5}); }};

void meets_a_loss(train::Worker& w) {
  if (w.incarnation() == 0)
    throw troupe::ObjectLost(troupe::Code::object_lost, "the node of the weights has gone");
  w.next_step();
  w.report({.step = w.step()});
}
/// Proves that a lost object restarts a run instead of ending it.
const programs::Program a_lost_object_is_a_restart{
    "a_lost_object_is_a_restart",
    {.expect = "1 restarts, 1 steps\n", .seconds = 15},
    [](troupe::Context& ctx) {
      const train::Fit fit = train::fit<meets_a_loss>(ctx, {.workers = 2, .max_restarts = 3});
      std::cout << fit.restarts() << " restarts, " << fit.last().step << " steps\n";
    }};

void does_nothing(train::Worker&) {}
/// Proves that workers are infeasible at once where all nodes together have too few CPUs.
const programs::Program more_cpus_than_a_node_has{
    "more_cpus_than_a_node_has",
    {.expect = "infeasible\ninfeasible\n", .seconds = 15},
    [](troupe::Context& ctx) {
      double most = 0;
      const auto nodes = ctx.cluster().nodes;
      for (const auto& node : nodes) most = std::max(most, node.cpus);
      for (const int workers : {static_cast<int>(nodes.size()) + 1, 1}) try {
          train::fit<does_nothing>(ctx, {.workers = workers,
                                         .max_restarts = 5,
                                         .cpus_per_worker = workers > 1 ? most : most + 1});
        } catch (const troupe::Infeasible&) {
          std::cout << "infeasible" << std::endl;
        }
    }};

/// One CPU. Two workers that reserve a CPU each do not fit, one does, and two that reserve none
/// do.
int on_one_cpu(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = 1});
  troupe::Context ctx = session.context();
  try {
    train::fit<does_nothing>(ctx, {.workers = 2, .max_restarts = 5, .cpus_per_worker = 1});
  } catch (const troupe::Infeasible&) {
    std::cout << "infeasible" << std::endl;
  }
  std::cout << train::fit<does_nothing>(ctx, {.workers = 1, .cpus_per_worker = 1}).restarts()
            << train::fit<does_nothing>(ctx, {.workers = 2}).restarts() << std::endl;
  return 0;
}
/// Proves that workers reserve exactly the CPUs that their options give.
const programs::Program workers_that_reserve_a_cpu{
    "workers_that_reserve_a_cpu",
    {.expect = "infeasible\n00\n", .seconds = 15, .nodes = 1},
    on_one_cpu};

void finds(train::Worker& w) {
  constexpr double mine[] = {4, 3, 2, 1}, other[] = {9, 1, 9, 9};
  for (int i = 0; i < 4; ++i) {
    w.next_step();
    w.checkpoint(i);
    w.report({.step = w.step(),
              .loss = w.rank() == 0 ? mine[i] : other[i],
              .extra = {{"accuracy", 0.1 * (i == 2) + 0.5}}});
  }
}
/// Proves that the best checkpoint follows rank 0's loss, or the metric that was chosen.
const programs::Program the_best_checkpoint{
    "the_best_checkpoint",
    {.expect = "step 2, loss 2\nstep 3, accuracy 0.6\n", .seconds = 15},
    [](troupe::Context& ctx) {
      const train::Fit loss = train::fit<finds>(ctx, {.workers = 2});
      std::cout << "step " << loss.best_checkpoint().step << ", loss " << *loss.best_value()
                << '\n';
      const train::Fit best =
          train::fit<finds>(ctx, {.workers = 2, .metric = "accuracy", .maximize = true});
      std::cout << "step " << best.best_checkpoint().step << ", accuracy " << *best.best_value()
                << '\n';
    }};

void short_one(train::Worker& w, int steps) noexcept {
  for (int i = 0; i < steps; ++i) w.next_step();
  w.report({.step = w.step()});
}
/// Proves that loops may be noexcept functions and lambdas.
const programs::Program noexcept_loops_and_lambdas{
    "noexcept_loops_and_lambdas", {.expect = "3 4 5\n", .seconds = 15}, [](troupe::Context& ctx) {
      constexpr auto lambda = [](train::Worker& w, int steps) { short_one(w, steps); };
      std::cout << train::fit<short_one>(ctx, {}, 3).last().step << ' '
                << train::fit<lambda>(ctx, {}, 4).last().step << ' '
                << train::fit(ctx, {}, lambda, 5).last().step << '\n';
    }};

/// Proves fit's timeout with an endless and with senseless durations.
const programs::Program timeouts_at_their_ends{
    "timeouts_at_their_ends",
    {.expect = "12\nrefused\nrefused\n", .seconds = 15},
    [](troupe::Context& ctx) {
      constexpr auto loop = [](train::Worker& w) {
        sums(w, 100);
        w.report({.step = w.step()});
      };
      std::cout << train::fit<loop>(ctx, {.workers = 2, .timeout = troupe::forever}).last().step
                << '\n';
      for (const troupe::Duration timeout : {troupe::Duration(0), troupe::Duration(-1)}) try {
          train::fit<loop>(ctx, {.workers = 2, .timeout = timeout});
        } catch (const troupe::InvalidArgument&) {
          std::cout << "refused" << std::endl;
        }
    }};

}  // namespace loops
}  // namespace

/// troupe tune: finds the hyper-parameters that score best. This is the header to include.
///
/// `optimize<trial>(ctx, space, options)` (optimize.hpp) runs trials as actors on a cluster.
///
/// The parts below optimize() need no thread, clock or network, and each can be used alone:
///
///     struct Hp { double lr, momentum; };
///     auto space = tune::Space<Hp>{}                                      // what may be varied
///                      .with(&Hp::lr, tune::log_uniform(1e-5, 1e-1))
///                      .with(&Hp::momentum, tune::uniform(0.8, 0.99));
///     tune::Options<tune::Pbt> options{.goal = tune::maximize, .trials = 8,
///                                      .scheduler = {.perturb_every = 5}, .max_steps = 100};
///     tune::Experiment experiment(space.search(), options.any());         // who does what, when
///     tune::Simulator(experiment, {.train = score_of_one_step, .weights = {0.0}}).run();
///     std::cout << tune::summary(experiment.board());
///     Hp best = space.from_point(experiment.board().best_params());
///
/// - `Space<Hp>` says which members of a struct are searched, and how (space.hpp, domain.hpp).
/// - A `Searcher` proposes points: random, grid, Halton, TPE (searcher.hpp; ask and tell).
/// - A `Scheduler` decides which trials go on: population-based training, successive halving in
///   two published variants, median, percentile, patience (scheduler.hpp).
/// - `Experiment` is the state machine between them and the trials: slots, retries, checkpoints,
///   copies proven by hashes, stop conditions, and a log that rebuilds it (experiment.hpp,
///   event.hpp).
/// - `Simulator` runs an experiment in virtual time, with a function in place of trials
///   (simulate.hpp).
/// - `Board` is everything known about an experiment. Views draw it as a live table, as pictures
///   and a page, and as files for other tools (board.hpp, views/).
///
/// Scores may be minimised or maximised; there is no default. Time, for schedulers, is the step
/// that a trial reports. The same seed and the same events give the same decisions.
#pragma once

#include "troupe/tune/board.hpp"
#include "troupe/tune/domain.hpp"
#include "troupe/tune/event.hpp"
#include "troupe/tune/experiment.hpp"
#include "troupe/tune/goal.hpp"
#include "troupe/tune/optimize.hpp"
#include "troupe/tune/scheduler.hpp"
#include "troupe/tune/searcher.hpp"
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/space.hpp"
#include "troupe/tune/trial.hpp"
#include "troupe/tune/views/files.hpp"
#include "troupe/tune/views/report.hpp"
#include "troupe/tune/views/tables.hpp"
#include "troupe/tune/views/terminal.hpp"

/// troupe train: training loops in gangs of processes, and what a step of training needs.
///
///     auto fit = train::fit<train_loop>(ctx, {.workers = 4, .max_restarts = 2}, Config{}, data);
///
/// Front door. A loop gets a Worker (worker.hpp): its rank, its share of the data, the mean of
/// gradients, reports and checkpoints. fit (fit.hpp) runs it and brings it through deaths. Beside
/// them, each usable alone: Gpt, AdamW, Sampler, TextDataset, rate schedules, safetensors.
#pragma once

#include "troupe/train/adamw.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/parameter_files.hpp"
#include "troupe/train/sampler.hpp"
#include "troupe/train/schedule.hpp"
#include "troupe/train/text.hpp"
#include "troupe/train/worker.hpp"

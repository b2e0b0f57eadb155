/// troupe train: training loops in gangs of processes, and the parts of a training step.
///
///     auto fit = train::fit<train_loop>(ctx, {.workers = 4, .max_restarts = 2}, Config{}, data);
///
/// Front door. fit (fit.hpp) runs a training loop in a gang and restarts it after deaths. The
/// loop gets a Worker (worker.hpp): its rank, its share of the data, its gang as a mesh, reports
/// and checkpoints. An Engine (engine/engine.hpp) trains a Model (models/models.hpp) in a Layout
/// over the mesh. Beside them are TextDataset, Sampler, rate schedules, generate(), snapshots and
/// safetensors files.
#pragma once

#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/language.hpp"
#include "troupe/train/engine/micro_batches.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/models/models.hpp"
#include "troupe/train/sampler.hpp"
#include "troupe/train/schedule.hpp"
#include "troupe/train/text.hpp"
#include "troupe/train/worker.hpp"

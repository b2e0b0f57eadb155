// Helpers that run engines on several ranks: threads of this process, over `local` or `shm`.
#pragma once

#include "troupe/actors/collective/local/local.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/transformer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::train::testing {

enum class Wire : std::uint8_t { local, shm };

struct GptShape {
  std::int64_t vocabulary = 61, context = 16, layers = 2, heads = 2, channels = 32;
  float dropout = 0;
  bool tied = true;  ///< whether the head shares the embedding
};

inline Model gpt(const GptShape& shape) {
  Model model;
  model.push_back(std::make_unique<layers::Embedding>(
      "transformer", layers::EmbeddingConfig{.vocabulary = shape.vocabulary,
                                             .context = shape.context,
                                             .channels = shape.channels,
                                             .dropout = shape.dropout}));
  for (std::int64_t i = 0; i < shape.layers; ++i)
    model.push_back(std::make_unique<layers::GptBlock>(
        "transformer.h." + std::to_string(i),
        layers::GptBlockConfig{
            .channels = shape.channels, .heads = shape.heads, .dropout = shape.dropout}));
  model.push_back(std::make_unique<layers::LmHead>(
      "transformer.ln_f",
      layers::LmHeadConfig{.vocabulary = shape.vocabulary,
                           .channels = shape.channels,
                           .tied_to = shape.tied ? "transformer.wte.weight" : ""}));
  return model;
}

/// Rows of tokens with targets; owns the memory of a MicroBatch.
struct Rows {
  std::vector<std::int32_t> inputs, targets;
  std::vector<std::int64_t> samples;
  std::int64_t rows = 0, time = 0;

  MicroBatch micro() {
    const Shape shape{rows, time};
    return {.input = {inputs.data(), DType::i32, shape},
            .targets = {targets.data(), DType::i32, shape},
            .samples = samples};
  }
};

/// Returns rows [first, end) of the step's batch. They depend on (step, row) only, and a share of
/// the targets is ignored.
inline Rows rows_of(const GptShape& shape, std::int64_t step, std::int64_t first, std::int64_t end,
                    double ignored = 0) {
  Rows rows;
  rows.rows = end - first;
  rows.time = shape.context;
  for (std::int64_t r = first; r < end; ++r) {
    const auto stream = static_cast<std::uint64_t>(step * 1000 + r);
    for (std::int64_t t = 0; t < shape.context; ++t) {
      const auto place = static_cast<std::uint64_t>(t);
      const double u = kernels::philox_uniform(5, stream, place);
      rows.inputs.push_back(static_cast<std::int32_t>(u * static_cast<double>(shape.vocabulary)));
      const bool drop = kernels::philox_uniform(6, stream, place) < ignored;
      rows.targets.push_back(
          drop ? kernels::kIgnore
               : static_cast<std::int32_t>((std::int64_t{7} * rows.inputs.back() + t) %
                                           shape.vocabulary));
    }
  }
  return rows;
}

/// Returns the rank's share of `batch` consecutive rows, in `micro` consecutive parts.
inline std::vector<Rows> share_of(const GptShape& shape, std::int64_t step, std::int64_t batch,
                                  int rank, int ranks, int micro, double ignored = 0) {
  const std::int64_t first = batch * rank / ranks, end = batch * (rank + 1) / ranks;
  std::vector<Rows> parts;
  for (int i = 0; i < micro; ++i)
    parts.push_back(rows_of(shape, step, first + (end - first) * i / micro,
                            first + (end - first) * (i + 1) / micro, ignored));
  return parts;
}

inline std::vector<MicroBatch> micros_of(std::vector<Rows>& parts) {
  std::vector<MicroBatch> micros;
  for (Rows& part : parts) micros.push_back(part.micro());
  return micros;
}

/// The mesh and device of one rank, for its engine.
struct RankContext {
  collective::Mesh mesh;
  kernels::Device device;
};

using RankBody = std::function<void(RankContext&)>;

inline std::vector<std::unique_ptr<collective::Communicator>> group_of(
    int ranks, Wire wire, const collective::LocalOptions& options = {}) {
  if (wire == Wire::local) return collective::local_group(ranks, options);
  const Fd memory = collective::create_shm_group({.size = ranks});
  std::vector<std::unique_ptr<collective::Communicator>> group;
  for (int rank = 0; rank < ranks; ++rank)
    group.push_back(collective::join_shm_group(memory, rank, 1, options.timeout));
  return group;
}

/// Returns the shape of a layout's mesh.
inline collective::MeshShape mesh_of(const Layout& layout) {
  return {.dp = layout.dp, .tp = layout.tp, .pp = layout.pp};
}

/// Runs the body on a thread for each rank of the mesh. An exception fails the test and ends the
/// other ranks.
inline void on_mesh(const collective::MeshShape& shape, Wire wire, const RankBody& body,
                    const collective::LocalOptions& options = {}) {
  auto group = group_of(shape.ranks(), wire, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        RankContext context{
            collective::make_mesh(std::move(group[static_cast<std::size_t>(rank)]), shape),
            kernels::cpu_device()};
        body(context);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// Runs the body on data-parallel ranks, as on_mesh() does.
inline void on_ranks(int ranks, Wire wire, const RankBody& body,
                     const collective::LocalOptions& options = {}) {
  on_mesh({.dp = ranks}, wire, body, options);
}

/// The results of a run on one rank.
struct Record {
  std::vector<double> losses, norms;
  std::uint64_t weights = 0, moments = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

/// Returns XXH64 over all tensors of a snapshot, with the moments.
inline std::uint64_t hash_of(const Snapshot& snapshot) {
  std::vector<std::uint64_t> hashes;
  for (const NamedTensor& tensor : snapshot.tensors)
    hashes.push_back(hash_bytes(tensor.bytes.data(), tensor.bytes.size()));
  return hash_bytes(hashes.data(), hashes.size() * sizeof(std::uint64_t));
}

struct Experiment {
  GptShape shape;
  Layout layout;
  OptimizerOptions optimizer = {.max_norm = 0.25};  // below the norms of these models
  Wire wire = Wire::local;
  std::int64_t batch = 8;
  double ignored = 0;
  int steps = 4;
  std::uint64_t seed = 1;
};

inline Record run_on(RankContext& context, const Experiment& e) {
  Engine engine(gpt(e.shape), e.layout, context.mesh, context.device, e.optimizer);
  engine.initialize(e.seed);
  Record record;
  for (int step = 0; step < e.steps; ++step) {
    std::vector<Rows> parts = share_of(e.shape, step, e.batch, context.mesh.dp_rank, e.layout.dp,
                                       e.layout.micro, e.ignored);
    const StepResult result = engine.step(micros_of(parts));
    record.losses.push_back(result.loss);
    record.norms.push_back(result.norm);
  }
  record.weights = engine.weights_hash();
  record.moments = hash_of(engine.snapshot());
  return record;
}

/// Runs the experiment; returns a record for each rank.
inline std::vector<Record> run(const Experiment& e) {
  std::vector<Record> records(static_cast<std::size_t>(e.layout.ranks()));
  on_mesh(mesh_of(e.layout), e.wire, [&](RankContext& context) {
    records[static_cast<std::size_t>(context.mesh.rank())] = run_on(context, e);
  });
  return records;
}

}  // namespace troupe::train::testing

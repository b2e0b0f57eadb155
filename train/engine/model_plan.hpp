/// A model of layers as the planner wants it, and an engine's plan.
///
///     const PlannedModel model = planned([&] { return models::gpt2(config); },
///                                        [&](const Layout& layout) { return input_of(layout); },
///                                        {.rate = 3e-4f});
///     std::cout << table(plans_that_fit(model, {.memory = memory, .ranks = {1, 2, 4}}));
#pragma once

#include "troupe/train/engine/stages.hpp"
#include "troupe/train/layers/layer.hpp"
#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/plan.hpp"

#include <functional>
#include <string>

namespace troupe::train {

/// The index of the model in a layout on one of its ranks, sealed: one unit a layer,
/// empty for layers without tensors and for those of other stages. Throws as Layer::declare(), and
/// when the layout's schedule or its stages do not fit. The layers know the tensors of the last
/// index that they declared.
TROUPE_API Index index_of(const Model& model, const Layout& layout, const RankPlace& rank = {});

/// Bytes of the arena for micro-batches of this input on a rank of the layout: what
/// Engine::bytes() says of activations. With pp = 1 one micro-batch lives at a time; else as many as
/// the rank's list of the schedule keeps. Throws InvalidArgument when a layer cannot take what comes
/// to it, and for more than 2^58 bytes. Call it behind index_of().
TROUPE_API std::int64_t activation_bytes(const Model& model, const Layout& layout, const Spec& in,
                                         const RankPlace& rank = {});

/// What a rank of the layout moves in a step of such micro-batches: what the traffic of
/// its groups has more after a step, in payload. Declares the layers, and throws as index_of() and
/// activation_bytes().
TROUPE_API Exchanges exchanges_of(const Model& model, const Layout& layout, const Spec& in,
                                  const RankPlace& rank = {});

/// memory_sentence() of this layout with the layouts of the same ranks that need less: what an
/// OutOfMemory of an engine says. `in` is one micro-batch of a rank, or null when it is not known;
/// then activations are not counted. Declares the layers again; the layers of an engine on this rank get the
/// same ids.
TROUPE_API std::string memory_sentence(const Model& model, const Layout& layout, const Spec* in,
                                       const OptimizerOptions& optimizer,
                                       const RankPlace& rank = {});

/// `model` makes a fresh one at each call; `input` says what one micro-batch of a rank is.
TROUPE_API PlannedModel planned(std::function<Model()> model,
                                std::function<Spec(const Layout&)> input,
                                const OptimizerOptions& optimizer);

}  // namespace troupe::train

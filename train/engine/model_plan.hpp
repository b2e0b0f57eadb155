/// Plans for models of layers: memory and traffic of a layout, before an engine is made.
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

/// Returns the sealed index of the model on one rank of a layout. It has one unit for each layer,
/// empty for layers without tensors and for layers of other stages. Throws as Layer::declare(),
/// and when the layout's schedule or its stages do not fit. Layers remember the tensors of the
/// last index that they declared.
TROUPE_API Index index_of(const Model& model, const Layout& layout, const RankPlace& rank = {});

/// Returns the bytes of the arena for micro-batches of this input on a rank of the layout, as
/// Engine::bytes() reports them. With pp = 1 one micro-batch is live at a time; otherwise as many
/// as the rank's list of the schedule keeps. Throws InvalidArgument when a layer does not accept
/// its input, and above 2^58 bytes. Call it after index_of().
TROUPE_API std::int64_t activation_bytes(const Model& model, const Layout& layout, const Spec& in,
                                         const RankPlace& rank = {});

/// Returns the payload bytes that the traffic counters of a rank's groups gain in a step of such
/// micro-batches. Declares the layers. Throws as index_of() and activation_bytes().
TROUPE_API Exchanges exchanges_of(const Model& model, const Layout& layout, const Spec& in,
                                  const RankPlace& rank = {});

/// Returns the memory_sentence() of this layout, with layouts of as many ranks that need less. An
/// engine adds it to its OutOfMemory errors. `in` is one micro-batch of a rank; when it is null,
/// activations are not counted. Declares the layers again; the layers of an engine on this rank
/// get the same ids.
TROUPE_API std::string memory_sentence(const Model& model, const Layout& layout, const Spec* in,
                                       const OptimizerOptions& optimizer,
                                       const RankPlace& rank = {});

/// Returns the model in the form that the planner takes (params/plan.hpp). `model` returns a new
/// model at each call; `input` returns the spec of one micro-batch of a rank.
TROUPE_API PlannedModel planned(std::function<Model()> model,
                                std::function<Spec(const Layout&)> input,
                                const OptimizerOptions& optimizer);

}  // namespace troupe::train

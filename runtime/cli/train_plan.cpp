/// The verb `troupe train plan`: what a model needs on each rank in every layout, and which layouts
/// fit.
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/train/engine/model_plan.hpp"
#include "troupe/train/models/models.hpp"

#include <algorithm>
#include <cstdio>

namespace troupe::cli {
namespace {

train::models::Gpt2Config config_of(const PlanRequest& request) {
  train::models::Gpt2Config config = train::models::gpt2_preset(request.model);
  if (request.layers > 0) config.layers = request.layers;
  if (request.heads > 0) config.heads = request.heads;
  if (request.channels > 0) config.channels = request.channels;
  if (request.context > 0) config.context = request.context;
  if (request.vocabulary > 0) config.vocabulary = request.vocabulary;
  return config;
}

/// Returns the input of one micro-batch of a rank: the step's samples, divided and rounded up.
train::Spec input_of(const PlanRequest& request, std::int64_t context,
                     const train::Layout& layout) {
  const std::int64_t parts = std::int64_t{layout.dp} * layout.micro;
  return {train::DType::i32, {(request.batch + parts - 1) / parts, context}};
}

train::DType type_of(const std::string& name) {
  for (const train::DType type : {train::DType::f32, train::DType::bf16, train::DType::f16})
    if (name == kernels::name_of(type)) return type;
  throw InvalidArgument(Code::invalid_argument,
                        "--compute is " + name + "; choose f32, bf16 or f16");
}

/// Returns how many ranks are of use. Further ranks would have no samples of a step, unless they
/// divide the model.
int most_ranks(const PlanRequest& request) {
  const double used = static_cast<double>(request.batch) * request.tp * request.pp;
  return static_cast<int>(std::min<double>(request.ranks, used));
}

/// Returns 1, 2, 4, ... below `most`, and `most` itself.
std::vector<int> ranks_up_to(int most) {
  std::vector<int> ranks;
  for (int n = 1; n < most; n *= 2) ranks.push_back(n);
  ranks.push_back(most);
  return ranks;
}

Json document(const train::Plan& plan) {
  return {{"dp", plan.layout.dp},
          {"tp", plan.layout.tp},
          {"pp", plan.layout.pp},
          {"sequence", plan.layout.sequence},
          {"pp_rank", plan.rank.pp},
          {"zero", plan.layout.zero},
          {"micro", plan.layout.micro},
          {"recompute", plan.layout.recompute == train::Recompute::full ? "full" : "none"},
          {"offload", plan.layout.offload == train::Offload::optimizer},
          {"parameters", plan.parameters},
          {"device_bytes", plan.device_bytes()},
          {"host_bytes", plan.host_bytes()},
          {"weights", plan.store.weights},
          {"gradients", plan.store.gradients},
          {"moments", plan.store.moments},
          {"master", plan.store.master},
          {"tied", plan.store.tied},
          {"copies", plan.store.copies},
          {"transient", plan.store.peak_transient},
          {"padding", plan.store.padding},
          {"activations", plan.activations},
          {"traffic_per_step", plan.traffic.payload()},
          {"tp_traffic_per_step", plan.exchanges.tp.payload()},
          {"pp_traffic_per_step", plan.exchanges.pp.payload()},
          {"tied_traffic_per_step", plan.exchanges.tied.payload()}};
}

void tell(const PlanRequest& request, std::uint64_t memory, const train::Plan& plain,
          const std::vector<train::Plan>& fitting) {
  std::printf("%s: %lld parameters; a step of %lld samples on up to %d ranks of %s\n",
              request.model.c_str(), static_cast<long long>(plain.parameters),
              static_cast<long long>(request.batch), most_ranks(request),
              size_text(memory).c_str());
  if (fitting.empty())
    std::printf("%s\n",
                train::memory_sentence(plain, static_cast<std::int64_t>(memory), fitting).c_str());
  else
    std::printf("%s", train::table(fitting).c_str());
}

}  // namespace

Exit plan_training(const PlanRequest& request) try {
  const std::uint64_t memory = bytes_of("--memory", request.memory);
  const train::models::Gpt2Config config = config_of(request);
  const train::PlannedModel model = train::planned(
      [&] { return train::models::gpt2(config); },
      [&](const train::Layout& layout) { return input_of(request, config.context, layout); }, {});
  const train::Layout base{
      .micro = request.micro, .compute = type_of(request.compute), .schedule = request.schedule};
  const std::vector<train::Plan> fitting =
      train::plans_that_fit(model, {.memory = static_cast<std::int64_t>(memory),
                                    .ranks = ranks_up_to(most_ranks(request)),
                                    .most_dp = static_cast<int>(request.batch),
                                    .most_tp = request.tp,
                                    .most_pp = request.pp,
                                    .base = base});
  const train::Plan plain = train::plan(model, base);
  if (!request.json) {
    tell(request, memory, plain, fitting);
  } else {
    Json plans = Json::array();
    for (const train::Plan& plan : fitting) plans.push_back(document(plan));
    print(
        {{"model", request.model}, {"memory", memory}, {"plain", document(plain)}, {"fit", plans}});
  }
  return fitting.empty() ? Exit::failed : Exit::ok;
} catch (const InvalidArgument& error) {
  throw Failure{Exit::usage, error};
}

}  // namespace troupe::cli

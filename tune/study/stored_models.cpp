#include "troupe/tune/study/stored_models.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace troupe::tune {

Result<StoredModel> pull_model(const Context& ctx, const train::SavedModel& saved,
                               Duration timeout) {
  if (!saved.model)
    return Error(Code::invalid_argument,
                 "tune: a model that lies in a run's folder is kept there and not copied");
  try {
    auto array = std::make_shared<const Array<std::uint8_t>>(ctx.get(saved.model, timeout));
    StoredModel model;
    model.bytes = std::as_bytes(std::span(array->data(), array->size()));
    model.types = saved.types;
    model.passes = saved.passes;
    model.batches = saved.batches;
    model.owner = std::move(array);
    return model;
  } catch (const Error& error) {
    return error;
  }
}

train::SavedModel publish_model(const Context& ctx, const StoredModel& model,
                                const CheckpointSave& save) {
  auto builder = ctx.create<std::uint8_t>(model.bytes.size());
  if (!model.bytes.empty()) std::memcpy(builder.data(), model.bytes.data(), model.bytes.size());
  train::SavedModel saved;
  saved.step = save.step;
  saved.bytes = model.bytes.size();
  saved.hash = train::hash_bytes(model.bytes.data(), model.bytes.size());
  saved.types = model.types;
  saved.passes = model.passes;
  saved.batches = model.batches;
  saved.model = builder.seal();
  return saved;
}

}  // namespace troupe::tune

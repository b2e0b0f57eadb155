/// Models between the object store and the files of a study.
///
///     options.pull = [&](const CheckpointSave& s) { return pull_model(ctx, saved[s.key], 30s); };
///     SavedModel again = publish_model(ctx, files.read(save).value(), save);   // for a start
#pragma once

#include "troupe/train/checkpoint.hpp"
#include "troupe/tune/study/checkpoint_files.hpp"

namespace troupe::tune {

/// Borrows the model's bytes from the object store. Blocks for the object at most `timeout`. The
/// result keeps the object. Errors: ObjectLost, TimedOut; InvalidArgument for a checkpoint in a
/// run's folder, which has no object.
TROUPE_API Result<StoredModel> pull_model(const Context& ctx, const train::SavedModel& saved,
                                          Duration timeout);

/// Makes an object of the bytes and returns what train::load_model() loads. Costs a copy of them.
/// Throws OutOfMemory.
TROUPE_API train::SavedModel publish_model(const Context& ctx, const StoredModel& model,
                                           const CheckpointSave& save);

}  // namespace troupe::tune

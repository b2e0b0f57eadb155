/// Writes and reads the resources and labels of a node or of an actor's demand in a record.
///
///     write_amounts(node.resources, node.labels, out);
///     read_amounts(in, node.resources, node.labels);      // in.ok(): it was all there
#pragma once

#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/scheduling/resources.hpp"

#include <string>
#include <utility>

namespace troupe::control::internal {

inline void write_amounts(const scheduling::Resources& resources, const scheduling::Labels& labels,
                          RecordWriter& out) {
  out.i64(resources.cpus).i64(resources.gpus).i64(resources.memory);
  out.u64(resources.custom.size());
  for (const auto& [name, amount] : resources.custom) out.bytes(name).i64(amount);
  out.u64(labels.size());
  for (const auto& [key, value] : labels) out.bytes(key).bytes(value);
}

/// Reads into both. Precondition: they are empty.
inline void read_amounts(RecordReader& in, scheduling::Resources& resources,
                         scheduling::Labels& labels) {
  resources.cpus = in.i64();
  resources.gpus = in.i64();
  resources.memory = in.i64();
  for (auto n = in.count(16); n > 0; --n) {
    std::string name = in.bytes();
    resources.custom.emplace_back(std::move(name), in.i64());
  }
  for (auto n = in.count(16); n > 0; --n) {
    std::string key = in.bytes();
    labels.emplace_back(std::move(key), in.bytes());
  }
}

}  // namespace troupe::control::internal

/// A shape as it crosses the wire, for the lease table and control.
///
///     leases.request(owner, key, shape_of(message.shape), backlog, now);
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>

namespace troupe::agent {

inline scheduling::Shape shape_of(const wire::Shape& from) {
  scheduling::Shape shape;
  shape.need.cpus = from.cpus;
  shape.need.gpus = from.gpus;
  shape.need.memory = scheduling::at_most_amount(from.memory_bytes);
  shape.need.custom = from.resources;
  scheduling::normalize(shape.need);
  shape.labels = from.labels;
  shape.placement = static_cast<scheduling::Placement>(from.placement);
  shape.node = from.node;
  shape.soft = from.soft;
  return shape;
}

/// And back, for another agent; what concerns this node alone stays behind.
inline wire::Shape wire_shape(const scheduling::Shape& from) {
  wire::Shape shape;
  shape.cpus = from.need.cpus;
  shape.gpus = from.need.gpus;
  shape.memory_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(0, from.need.memory));
  shape.resources = from.need.custom;
  shape.labels = from.labels;
  shape.placement = static_cast<std::uint8_t>(from.placement);
  shape.node = from.node;
  shape.soft = from.soft;
  return shape;
}

}  // namespace troupe::agent

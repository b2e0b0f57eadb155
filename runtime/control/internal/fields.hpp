/// Parts that several messages of control have in common, to and from the schema. The write()
/// functions cut texts and assert other bounds. The read() functions throw an Error
/// (invalid_argument) that names the field.
#pragma once

#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/wire/internal/frame.hpp"

#include "schema/control.capnp.h"

namespace troupe::control::internal {

namespace schema = troupe::schema::control;
namespace fields = wire::internal;
using fields::bounded;
using fields::checked;
using fields::CutText;
using fields::read_enum;
using fields::read_error;
using fields::read_text;
using fields::refuse;
using fields::write_optional;
using wire::kMaxPath;
using wire::kMaxRows;

/// Bytes of the user, which only the message's size bounds.
inline capnp::Data::Reader data_of(const std::string& bytes) {
  return {reinterpret_cast<const capnp::byte*>(bytes.data()), bytes.size()};
}
inline std::string string_of(capnp::Data::Reader data) {
  return {reinterpret_cast<const char*>(data.begin()), data.size()};
}

void write(schema::NodeDescription::Builder out, const NodeDescription& node);
void read(schema::NodeDescription::Reader in, NodeDescription& node);
void write(schema::NodeReport::Builder out, const NodeReport& report);
void read(schema::NodeReport::Reader in, NodeReport& report);
void write(schema::ActorSpec::Builder out, const ActorSpec& spec);
void read(schema::ActorSpec::Reader in, ActorSpec& spec);
void write(schema::JobRecord::Builder out, const JobRecord& job);
void read(schema::JobRecord::Reader in, JobRecord& job);
void write(schema::ObjectName::Builder out, const ObjectName& name);
void read(schema::ObjectName::Reader in, ObjectName& name);

}  // namespace troupe::control::internal

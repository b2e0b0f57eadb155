/// Encodes and decodes the fields that several messages share. The write() functions cut texts and
/// assert other bounds. The read() functions throw Error (invalid_argument) that names the field.
#pragma once

#include "troupe/runtime/wire/log_batch.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <capnp/message.h>
#include <optional>
#include <string>

#include "schema/call.capnp.h"
#include "schema/node.capnp.h"
#include "schema/value.capnp.h"

namespace troupe::wire::internal {

[[noreturn]] void refuse(const char* field, const char* why);
[[noreturn]] void refuse_count(const char* field, std::size_t count, std::size_t bound);

/// Returns the size of a received list. Throws when it exceeds the bound.
inline std::size_t bounded(std::size_t count, std::size_t bound, const char* field) {
  if (count > bound) refuse_count(field, count, bound);
  return count;
}
/// Returns the size of a list to be sent, in Cap'n Proto's type. Asserts the bound.
inline unsigned checked(std::size_t count, std::size_t bound) {
  TROUPE_ASSERT(count <= bound, "a list of a message is longer than its readers take");
  return static_cast<unsigned>(count);
}

/// A text cut to at most `bound` bytes, without half of a UTF-8 sequence at the end. It borrows a
/// text that is short enough. A longer one is copied, because Cap'n Proto needs a zero after it.
class CutText {
 public:
  explicit CutText(const std::string& text, std::size_t bound = kMaxText);
  std::size_t size() const noexcept { return cut_ ? cut_->size() : text_.size(); }
  operator capnp::Text::Reader() const {
    const std::string& text = cut_ ? *cut_ : text_;
    return capnp::Text::Reader(text.c_str(), text.size());
  }

 private:
  const std::string& text_;
  std::optional<std::string> cut_;
};

template <class Tag>
void write(schema::Id::Builder out, const Id<Tag>& id) {
  out.setHigh(id.high);
  out.setLow(id.low);
}
template <class Tag>
void read(schema::Id::Reader in, Id<Tag>& id) {
  id.high = in.getHigh();
  id.low = in.getLow();
}

/// Inquire and PeerInquire have the same fields for a question about a log.
template <class Builder>
void write_log_question(Builder& out, const LogQuestion& m) {
  if (m.job) write(out.initJob(), m.job);
  out.setAfterBytes(m.after);
  out.setMostBytes(m.most);
  out.setWaitMs(m.wait_ms);
  out.setUntilComplete(m.until_complete);
}
template <class Reader>
void read_log_question(const Reader& in, LogQuestion& m) {
  if (in.hasJob()) read(in.getJob(), m.job);
  m.after = in.getAfterBytes();
  m.most = in.getMostBytes();
  m.wait_ms = in.getWaitMs();
  m.until_complete = in.getUntilComplete();
  bounded(m.most, kMaxLogBatch, "mostBytes");
  bounded(m.wait_ms, kMaxLogWait, "waitMs");
}

void write(schema::ListQuestion::Builder out, const ListQuestion& m);
void read(schema::ListQuestion::Reader in, ListQuestion& m);
template <class Builder>
void write_stack_question(Builder& out, const StackQuestion& m) {
  out.setStackPid(m.pid);
  if (m.actor) write(out.initStackActor(), m.actor);
  if (m.job) write(out.initStackJob(), m.job);
}
template <class Reader>
void read_stack_question(const Reader& in, StackQuestion& m) {
  m.pid = in.getStackPid();
  if (in.hasStackActor()) read(in.getStackActor(), m.actor);
  if (in.hasStackJob()) read(in.getStackJob(), m.job);
}

using Ids = capnp::List<schema::Id>;
template <class Tag>
void write_ids(Ids::Builder out, const std::vector<Id<Tag>>& ids) {
  for (unsigned i = 0; i < out.size(); ++i) write(out[i], ids[i]);
}
template <class Tag>
void read_ids(Ids::Reader in, std::vector<Id<Tag>>& ids, std::size_t bound, const char* field) {
  ids.resize(bounded(in.size(), bound, field));
  for (unsigned i = 0; i < in.size(); ++i) read(in[i], ids[i]);
}
template <class Enum>
Enum read_enum(std::uint8_t value, Enum last, const char* field) {
  if (value > static_cast<std::uint8_t>(last)) refuse(field, "is out of range");
  return static_cast<Enum>(value);
}

std::string read_text(capnp::Text::Reader in, const char* field, std::size_t bound = kMaxText);
template <class Builder>
void write_stop_question(Builder& out, const StopQuestion& m) {
  write(out.initStopJob(), m.job);
  out.setStopUser(CutText(m.user, kMaxUser));
}
template <class Reader>
void read_stop_question(const Reader& in, StopQuestion& m) {
  read(in.getStopJob(), m.job);
  m.user = read_text(in.getStopUser(), "user", kMaxUser);
}

using Texts = capnp::List<capnp::Text>;
void write(Texts::Builder out, const std::vector<std::string>& texts, std::size_t bound);
/// At most kMaxRows of them.
void read_texts(Texts::Reader in, std::vector<std::string>& texts, const char* field,
                std::size_t bound);
void write(capnp::List<std::int32_t>::Builder out, const std::vector<std::int32_t>& gpus);
void read(capnp::List<std::int32_t>::Reader in, std::vector<std::int32_t>& gpus);

void write(schema::Location::Builder out, const Location& location);
void read(schema::Location::Reader in, Location& location);

using Errors = capnp::List<schema::ErrorEntry>;
/// Returns how many entries write_error() needs for this error; 0 for null.
unsigned entries_of(const std::shared_ptr<const ErrorInfo>& error) noexcept;
void write_error(Errors::Builder out, const ErrorInfo& error);
std::shared_ptr<const ErrorInfo> read_error(Errors::Reader in);
/// Writes the field `error` of a message, unless it is null.
template <class Builder>
void write_optional(Builder out, const std::shared_ptr<const ErrorInfo>& error) {
  if (error) write_error(out.initError(entries_of(error)), *error);
}

using Amounts = capnp::List<schema::Amount>;
void write(Amounts::Builder out, const std::vector<std::pair<std::string, std::int64_t>>& amounts);
void read(Amounts::Reader in, std::vector<std::pair<std::string, std::int64_t>>& amounts);
std::int64_t read_amount(std::int64_t amount, const char* field);
void write(schema::ResourceDemand::Builder out, const ResourceDemand& demand);
void read(schema::ResourceDemand::Reader in, ResourceDemand& demand);

void write(schema::Value::Builder out, const Value& value);
/// `payload_size` bounds the range of an inline value. The Reader is passed by reference, because
/// copying it is slow on the path of every call.
void read(const schema::Value::Reader& in, Value& value, std::size_t payload_size);

void write(schema::Call::Builder out, const Call& call);
void read(const schema::Call::Reader& in, Call& call, std::size_t payload_size);

void write(schema::CreateActor::Builder out, const CreateActor& message);
void read(schema::CreateActor::Reader in, CreateActor& message, std::size_t payload_size);

/// Write and read any message of the conversation with the agent.
void write(schema::NodeMessage::Builder out, const NodeMessage& message);
void read(schema::NodeMessage::Reader in, NodeMessage& message, std::size_t payload_size);
/// Throws Error (unavailable) for an unknown member of a union.
[[noreturn]] void unsupported(unsigned member);

}  // namespace troupe::wire::internal

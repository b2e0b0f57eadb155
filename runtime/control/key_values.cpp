#include "troupe/runtime/control/key_values.hpp"

#include "troupe/runtime/control/codec.hpp"

namespace troupe::control {
namespace {

constexpr std::uint8_t kValueFormat = 1;
constexpr const char* kValuePrefix = "kv/";

std::string store_key(const std::string& name_space, const std::string& key) {
  return kValuePrefix + std::to_string(name_space.size()) + "/" + name_space + "/" + key;
}

std::size_t size_of(const std::string& name_space, const std::string& key,
                    const std::string& value) {
  return name_space.size() + key.size() + value.size();
}

}  // namespace

Result<KeyValues> KeyValues::recover(Store& store, KeyValueOptions options) {
  KeyValues values(options);
  bool readable = true;
  auto read = store.scan(kValuePrefix, [&](std::string_view, std::string_view bytes) {
    RecordReader in(bytes);
    std::string name_space = in.bytes();
    std::string key = in.bytes();
    std::string value = in.bytes();
    readable = readable && in.ok() && in.version() == kValueFormat;
    values.total_ += size_of(name_space, key, value);
    values.values_[{std::move(name_space), std::move(key)}] = std::move(value);
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a key-value record cannot be read: it was written by a newer build");
  return values;
}

KeyValues::Out KeyValues::refuse(NodeId to, std::uint64_t request, Code code,
                                 const std::string& why) const {
  Out out;
  KvReply reply;
  reply.to = to;
  reply.request = request;
  reply.error = Error(code, why).shared_info();
  out.after_sync.push_back(std::move(reply));
  return out;
}

KeyValues::Out KeyValues::on_put(const PutValue& message) {
  const std::size_t key_size = message.name_space.size() + message.key.size();
  if (message.key.empty() || key_size > options_.max_key)
    return refuse(message.from, message.request, Code::invalid_argument,
                  "a key must not be empty, and with its namespace have at most " +
                      std::to_string(options_.max_key) + " bytes");
  if (message.value.size() > options_.max_value)
    return refuse(message.from, message.request, Code::invalid_argument,
                  "a value of " + std::to_string(message.value.size()) + " bytes is over " +
                      std::to_string(options_.max_value) + ": put it into the object store");
  Out out;
  KvReply reply;
  reply.to = message.from;
  reply.request = message.request;
  const Key key{message.name_space, message.key};
  const auto at = values_.find(key);
  const bool present = at != values_.end();
  const bool agrees =
      message.mode == PutMode::always || (message.mode == PutMode::if_absent && !present) ||
      (message.mode == PutMode::if_equal && present && at->second == message.expected);
  if (agrees) {
    const std::size_t before = present ? size_of(key.first, key.second, at->second) : 0;
    const std::size_t after = size_of(key.first, key.second, message.value);
    if (total_ - before + after > options_.max_total)
      return refuse(message.from, message.request, Code::overloaded,
                    "the key-value map is full (" + std::to_string(options_.max_total >> 20) +
                        " MiB): delete keys first");
    total_ = total_ - before + after;
    values_[key] = message.value;
    out.writes.put(
        store_key(key.first, key.second),
        RecordWriter(kValueFormat).bytes(key.first).bytes(key.second).bytes(message.value).take());
    reply.done = true;
  } else if (present) {
    reply.value = at->second;
  }
  out.after_sync.push_back(std::move(reply));
  return out;
}

KeyValues::Out KeyValues::on_get(NodeId from, std::uint64_t request, const std::string& name_space,
                                 const std::string& key) const {
  Out out;
  KvReply reply;
  reply.to = from;
  reply.request = request;
  const auto at = values_.find({name_space, key});
  reply.done = at != values_.end();
  if (reply.done) reply.value = at->second;
  out.after_sync.push_back(std::move(reply));
  return out;
}

KeyValues::Out KeyValues::on_delete(NodeId from, std::uint64_t request,
                                    const std::string& name_space, const std::string& key) {
  Out out;
  KvReply reply;
  reply.to = from;
  reply.request = request;
  const auto at = values_.find({name_space, key});
  reply.done = at != values_.end();
  if (reply.done) {
    total_ -= size_of(name_space, key, at->second);
    values_.erase(at);
    out.writes.del(store_key(name_space, key));
  }
  out.after_sync.push_back(std::move(reply));
  return out;
}

KeyValues::Out KeyValues::on_list(NodeId from, std::uint64_t request, const std::string& name_space,
                                  const std::string& prefix) const {
  Out out;
  KvReply reply;
  reply.to = from;
  reply.request = request;
  std::size_t bytes = 0;
  for (auto at = values_.lower_bound({name_space, prefix}); at != values_.end(); ++at) {
    if (at->first.first != name_space || at->first.second.compare(0, prefix.size(), prefix) != 0)
      break;
    bytes += at->first.second.size();
    if (reply.keys.size() == options_.max_listed || bytes > options_.max_listed_bytes)
      return refuse(
          from, request, Code::overloaded,
          "over " + std::to_string(reply.keys.size()) + " keys begin so: ask for a longer prefix");
    reply.keys.push_back(at->first.second);
  }
  reply.done = true;
  out.after_sync.push_back(std::move(reply));
  return out;
}

}  // namespace troupe::control

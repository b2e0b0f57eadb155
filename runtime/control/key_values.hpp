/// The cluster's key-value map: small durable values for users and for other parts of the product.
/// A plain state machine; Service feeds it KeyValueRequest.
///
///     auto out = values.on_put({from, request, "ns", "key", "value", PutMode::if_absent});
///     // its KvReply leaves once the write is durable; reads never show what could still be lost
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/output.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control {

enum class PutMode : std::uint8_t { always = 0, if_absent = 1, if_equal = 2 };

struct PutValue {
  NodeId from;
  std::uint64_t request = 0;
  std::string name_space, key, value;
  PutMode mode = PutMode::always;
  std::string expected;  ///< with if_equal
};
struct KvReply {
  NodeId to;
  std::uint64_t request = 0;
  bool done = false;                 ///< a put or delete changed something, or the key was found
  std::optional<std::string> value;  ///< of a get; of a put that was not done: the present value
  std::vector<std::string> keys;     ///< list, in byte order
  std::shared_ptr<const ErrorInfo> error;
};

struct KeyValueOptions {
  std::size_t max_key = 1024;          ///< bytes, of namespace and key together
  std::size_t max_value = 512 * 1024;  ///< bytes; larger ones belong into the object store
  std::size_t max_total = 256u << 20;  ///< bytes of all keys and values; then `overloaded`
  std::size_t max_listed = 10'000;
  std::size_t max_listed_bytes = 512 * 1024;  ///< of all keys of one answer
};

class KeyValues {
 public:
  using Out = Output<KvReply>;
  explicit KeyValues(KeyValueOptions options) : options_(options) {}
  static Result<KeyValues> recover(Store& store, KeyValueOptions options);

  Out on_put(const PutValue& message);
  Out on_get(NodeId from, std::uint64_t request, const std::string& name_space,
             const std::string& key) const;
  Out on_delete(NodeId from, std::uint64_t request, const std::string& name_space,
                const std::string& key);
  /// Lists the keys of the namespace that begin with `prefix`. An error when there are over
  /// max_listed, or when they take over max_listed_bytes.
  Out on_list(NodeId from, std::uint64_t request, const std::string& name_space,
              const std::string& prefix) const;
  std::size_t total_bytes() const noexcept { return total_; }

 private:
  using Key = std::pair<std::string, std::string>;
  Out refuse(NodeId to, std::uint64_t request, Code code, const std::string& why) const;

  KeyValueOptions options_;
  std::map<Key, std::string> values_;
  std::size_t total_ = 0;
};

}  // namespace troupe::control

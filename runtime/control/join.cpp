#include "troupe/runtime/control/join.hpp"

#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/internal/amounts.hpp"
#include "troupe/runtime/net/keys.hpp"

#include <string_view>

namespace troupe::control {
namespace {

constexpr std::uint8_t kJoinFormat = 1;
constexpr std::int64_t kMaxAmount = std::int64_t{1} << 61;

Blob blob_of(const std::string& text) {
  const auto* at = reinterpret_cast<const std::byte*>(text.data());
  return Blob(at, at + text.size());
}

std::string_view view_of(BlobView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error bad(const std::string& what) {
  return Error(Code::invalid_argument, "a request to join is refused: " + what);
}

bool is_text(const std::string& text) {
  return text.size() <= kMaxJoinText && text.find('\0') == std::string::npos;
}

bool is_amount(std::int64_t amount) {
  return amount >= 0 && amount <= kMaxAmount;
}

/// Returns what is wrong with the description; empty when nothing is.
std::string complaint(const NodeDescription& node) {
  if (!node.id) return "it has no id";
  for (const std::string* text : {&node.name, &node.address})
    if (!is_text(*text)) return "its name or address is too long";
  if (!net::PublicKey::parse(node.public_key)) return "it has no public key";
  const auto& resources = node.resources;
  if (!is_amount(resources.cpus) || !is_amount(resources.gpus) || !is_amount(resources.memory))
    return "its resources are not amounts";
  if (resources.custom.size() > kMaxJoinRows || node.labels.size() > kMaxJoinRows)
    return "it has over 64 resources or labels";
  for (const auto& [name, amount] : resources.custom)
    if (!is_text(name) || !is_amount(amount)) return "one of its resources is not an amount";
  for (const auto& [key, value] : node.labels)
    if (!is_text(key) || !is_text(value)) return "one of its labels is too long";
  return {};
}

}  // namespace

Blob encode(const JoinAsk& ask) {
  const NodeDescription& node = ask.node;
  RecordWriter out(kJoinFormat);
  out.id(node.id).bytes(node.name).bytes(node.address).bytes(node.public_key);
  internal::write_amounts(node.resources, node.labels, out);
  out.boolean(node.beside_control);
  return blob_of(out.take());
}

Result<JoinAsk> decode_join_ask(BlobView bytes) {
  RecordReader in(view_of(bytes));
  JoinAsk ask;
  NodeDescription& node = ask.node;
  node.id = in.id<NodeId>();
  node.name = in.bytes();
  node.address = in.bytes();
  node.public_key = in.bytes();
  internal::read_amounts(in, node.resources, node.labels);
  node.beside_control = in.boolean();
  if (!in.ok() || !in.at_end() || in.version() != kJoinFormat) return bad("it cannot be read");
  if (const std::string why = complaint(node); !why.empty()) return bad(why);
  return ask;
}

Blob encode(const JoinAnswer& answer) {
  return blob_of(RecordWriter(kJoinFormat).id(answer.cluster).id(answer.control).take());
}

Result<JoinAnswer> decode_join_answer(BlobView bytes) {
  RecordReader in(view_of(bytes));
  JoinAnswer answer;
  answer.cluster = in.id<ClusterId>();
  answer.control = in.id<NodeId>();
  if (!in.ok() || !in.at_end() || in.version() != kJoinFormat || !answer.cluster || !answer.control)
    return Error(Code::invalid_argument, "control's answer to the join cannot be read");
  return answer;
}

}  // namespace troupe::control

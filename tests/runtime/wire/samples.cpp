#include "tests/runtime/wire/fill.hpp"

namespace troupe::wire::samples {
namespace {

template <class Variant>
Blob frame(const Variant& message, BlobView payload) {
  FrameWriter writer;
  const BlobView head = writer.encode(message);
  Blob whole(head.begin(), head.end());
  whole.insert(whole.end(), payload.begin(), payload.end());
  return whole;
}

}  // namespace

CallMessage random_call(Random& random, std::size_t payload_size, std::size_t member, bool tidy) {
  return random_member<CallMessage>(random, payload_size, member, tidy);
}
NodeMessage random_node(Random& random, std::size_t payload_size, std::size_t member, bool tidy) {
  return random_member<NodeMessage>(random, payload_size, member, tidy);
}
PeerMessage random_peer(Random& random, std::size_t payload_size, std::size_t member, bool tidy) {
  return random_member<PeerMessage>(random, payload_size, member, tidy);
}
Creation random_creation(Random& random, std::size_t payload_size, bool tidy) {
  return std::get<0>(random_member<std::variant<Creation>>(random, payload_size, 0, tidy));
}
CallMessage random_call(Random& random, std::size_t payload_size) {
  return random_call(random, payload_size, random.below(std::variant_size_v<CallMessage>));
}
NodeMessage random_node(Random& random, std::size_t payload_size) {
  return random_node(random, payload_size, random.below(std::variant_size_v<NodeMessage>));
}

std::string text_of(const CallMessage& message) {
  return print_members(message);
}
std::string text_of(const NodeMessage& message) {
  return print_members(message);
}
std::string text_of(const PeerMessage& message) {
  return print_members(message);
}
std::string text_of(const Creation& creation) {
  return print_members(std::variant<Creation>(creation));
}
std::string_view name_of(const PeerMessage& message) {
  return type_name(message);
}
std::string_view name_of(const CallMessage& message) {
  return type_name(message);
}
std::string_view name_of(const NodeMessage& message) {
  return type_name(message);
}
Blob frame_of(const CallMessage& message, BlobView payload) {
  return frame(message, payload);
}
Blob frame_of(const NodeMessage& message, BlobView payload) {
  return frame(message, payload);
}

Blob frame_of(const PeerMessage& message, BlobView payload) {
  PeerWriter writer;
  const BlobView whole = writer.encode(message, payload);
  return Blob(whole.begin(), whole.end());
}

Blob random_bytes(Random& random, std::size_t size) {
  Blob bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace troupe::wire::samples

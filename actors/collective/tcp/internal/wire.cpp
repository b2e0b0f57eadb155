#include "troupe/actors/collective/tcp/internal/wire.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::internal {
namespace {

constexpr std::uint64_t kMagic = 0x0001'6b6e'6c'70'7274;  // "trplnk", version 1
constexpr std::uint8_t kProofKind = 0;

void put(std::byte* at, std::uint64_t value, int bytes) noexcept {
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}
std::uint64_t take(const std::byte* at, int bytes) noexcept {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return value;
}

/// Writes 28 bytes: magic and version, group, from, to.
void put_beginning(std::byte* at, const Beginning& beginning) noexcept {
  put(at, kMagic, 8);
  put(at + 8, beginning.name.first, 4);
  put(at + 12, beginning.name.lane, 4);
  put(at + 16, beginning.name.use, 4);
  put(at + 20, static_cast<std::uint32_t>(beginning.from), 4);
  put(at + 24, static_cast<std::uint32_t>(beginning.to), 4);
}

FrameHead head_of(std::size_t length, std::uint8_t kind) noexcept {
  FrameHead head{};
  put(head.data(), length, 4);
  head[4] = static_cast<std::byte>(kind);
  return head;
}

}  // namespace

Hello make_hello(const Beginning& beginning, const Secret<32>& key) {
  Hello hello{};
  put_beginning(hello.data(), beginning);
  const Proof proof = make_proof(key);
  std::copy(proof.begin(), proof.end(), hello.begin() + kBeginning);
  return hello;
}

std::optional<Beginning> beginning_of(const Hello& hello) noexcept {
  const std::byte* const at = hello.data();
  const auto number = [&](int offset) { return static_cast<std::uint32_t>(take(at + offset, 4)); };
  if (take(at, 8) != kMagic || number(28) != 0) return {};
  return Beginning{{.first = number(8), .lane = number(12), .use = number(16)},
                   static_cast<int>(number(20)),
                   static_cast<int>(number(24))};
}

std::span<const std::byte, kProof> proof_of(const Hello& hello) noexcept {
  return std::span<const std::byte, kBeginning + kProof>(hello).last<kProof>();
}

Secret<32> key_of_direction(const Secret<32>& gang, const LinkName& name, int from, int to) {
  std::array<std::byte, kBeginning> text{};
  put_beginning(text.data(), {name, from, to});
  return hmac_sha256({gang.data(), gang.size()}, text);
}

Secret<32> key_after(const Secret<32>& key) {
  constexpr char text[] = {'n', 'e', 'x', 't'};
  return hmac_sha256({key.data(), key.size()}, std::as_bytes(std::span(text)));
}

Proof make_proof(const Secret<32>& key) {
  Proof proof{};
  const FrameHead head = head_of(0, kProofKind);
  std::copy(head.begin(), head.end(), proof.begin());
  FrameCipher cipher(key, FrameCipher::Use::seal);
  cipher.begin(head);
  cipher.seal(std::span(proof).last<kSealTag>());
  return proof;
}

bool is_proof(std::span<const std::byte, kProof> bytes, const Secret<32>& key) {
  const Proof good = make_proof(key);
  return equal_in_constant_time(bytes.data(), good.data(), good.size());
}

FrameHead make_head(std::size_t length, FrameKind kind) noexcept {
  return head_of(length, static_cast<std::uint8_t>(kind));
}

std::uint32_t length_of(std::span<const std::byte, kFrameHead> head) noexcept {
  return static_cast<std::uint32_t>(take(head.data(), 4));
}

std::optional<FrameKind> kind_of(std::span<const std::byte, kFrameHead> head) noexcept {
  const auto kind = static_cast<FrameKind>(head[4]);
  const bool known = kind >= FrameKind::data && kind <= FrameKind::left;
  if (!known || take(head.data() + 5, 3) != 0) return {};
  return kind;
}

}  // namespace troupe::collective::internal

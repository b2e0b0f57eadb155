/// The bytes of a link. It begins with 32 bytes in clear (magic and version, group, from, to) and a
/// proof, which together are its `Hello`. The other end answers with its own proof. Then come
/// frames: 8 bytes of head (length, kind), the sealed bytes, a tag. The head is associated data.
///
/// A proof is the first frame of a direction, empty and under count 0; it has the same bytes each
/// time that it is made. Numbers are little-endian.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/runtime/base/sealing/sealing.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe::collective::internal {

inline constexpr std::size_t kBeginning = 32;
inline constexpr std::size_t kFrameHead = 8;
inline constexpr std::size_t kFrameOverhead = kFrameHead + kSealTag;
inline constexpr std::size_t kProof = kFrameOverhead;

using Proof = std::array<std::byte, kProof>;
using Hello = std::array<std::byte, kBeginning + kProof>;

/// What a link says in clear.
struct Beginning {
  LinkName name;
  int from = 0;  ///< world rank of the end that connects
  int to = 0;
};

/// Makes the first bytes of a link. `key` is that of the direction from `from` to `to`.
Hello make_hello(const Beginning& beginning, const Secret<32>& key);
/// Returns what a hello says in clear, or nothing where magic or version is another one.
std::optional<Beginning> beginning_of(const Hello& hello) noexcept;
/// Returns the part of a hello that proves the key.
std::span<const std::byte, kProof> proof_of(const Hello& hello) noexcept;

/// Returns the key of what `from` sends to `to` over a link. Each direction has its own.
Secret<32> key_of_direction(const Secret<32>& gang, const LinkName& name, int from, int to);
/// Returns the key that follows a key that has served its bytes.
Secret<32> key_after(const Secret<32>& key);

Proof make_proof(const Secret<32>& key);
bool is_proof(std::span<const std::byte, kProof> bytes, const Secret<32>& key);

using FrameHead = std::array<std::byte, kFrameHead>;
FrameHead make_head(std::size_t length, FrameKind kind) noexcept;
std::uint32_t length_of(std::span<const std::byte, kFrameHead> head) noexcept;
/// Returns nothing for a head that no link writes.
std::optional<FrameKind> kind_of(std::span<const std::byte, kFrameHead> head) noexcept;

}  // namespace troupe::collective::internal

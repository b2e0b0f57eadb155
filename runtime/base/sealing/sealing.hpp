/// Sealing: frames under AES-256-GCM (NIST SP 800-38D) with a counted nonce, and HMAC-SHA-256
/// (RFC 2104). A library of its own, the room `sealing`, since it needs OpenSSL.
///
///     FrameCipher out(key, FrameCipher::Use::seal), in(key, FrameCipher::Use::open);
///     out.begin(head);  out.update(text, sealed, size);  out.seal(tag);
///     in.begin(head);   in.update(sealed, text, size);   if (!in.open(tag)) refuse();
#pragma once

#include "troupe/runtime/base/secret.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace troupe {

inline constexpr std::size_t kSealTag = 16;  ///< bytes of a frame's tag

/// Returns the HMAC-SHA-256 of a text. Does not block.
Secret<32> hmac_sha256(BlobView key, BlobView text);

/// Seals or opens the frames of one direction, one after the other. The nonce of a frame is
/// `prefix` and then a count, both little-endian. The count does not travel, so a frame that is
/// repeated, left out or moved is not authentic. A key serves one direction of one stream. The key
/// is inside OpenSSL's context, which wipes it. Not thread-safe; does not block.
class FrameCipher {
 public:
  enum class Use : std::uint8_t { seal, open };
  /// The nonce of the first frame; 96 bits.
  struct Nonce {
    std::uint32_t prefix = 0;
    std::uint64_t count = 0;
  };
  FrameCipher(const Secret<32>& key, Use use, Nonce first);
  FrameCipher(const Secret<32>& key, Use use) : FrameCipher(key, use, Nonce{}) {}

  /// Goes on under another key, from a count of zero.
  void replace_key(const Secret<32>& key);
  /// Begins the next frame. `associated` is authenticated and stays in clear.
  void begin(BlobView associated);
  /// Seals or opens the next `size` bytes of the frame, less than 2^31. `in` may equal `out`.
  /// Whole blocks of 16 bytes are faster than others.
  void update(const std::byte* in, std::byte* out, std::size_t size);
  /// Ends a frame that is sealed, and writes its tag.
  void seal(std::span<std::byte, kSealTag> tag);
  /// Ends a frame that is opened. Returns whether the frame is authentic; only then may its bytes
  /// be used.
  bool open(std::span<const std::byte, kSealTag> tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Nonce next_;
};

}  // namespace troupe

// Tests sealing against published vectors: the test cases of McGrew and Viega for GCM, which NIST
// adopted, and RFC 4231 for HMAC-SHA-256. Frames that are altered, repeated or moved are not
// authentic.
#include "troupe/runtime/base/sealing/sealing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

Blob from_hex(std::string_view hex) {
  Blob bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}
Blob text(std::string_view s) {
  const auto* at = reinterpret_cast<const std::byte*>(s.data());
  return Blob(at, at + s.size());
}
Secret<32> key_of(std::string_view hex) {
  const Blob bytes = from_hex(hex);
  Secret<32> key;
  std::copy(bytes.begin(), bytes.end(), key.data());
  return key;
}
Blob of(const Secret<32>& secret) {
  return Blob(secret.data(), secret.data() + secret.size());
}

struct Sealed {
  Blob text;
  Blob tag = Blob(kSealTag);
};
Sealed seal(FrameCipher& cipher, BlobView associated, BlobView plain) {
  Sealed out{Blob(plain.size())};
  cipher.begin(associated);
  cipher.update(plain.data(), out.text.data(), plain.size());
  cipher.seal(std::span<std::byte, kSealTag>(out.tag));
  return out;
}
/// Opens in place, as links do. Returns whether the frame is authentic.
bool open(FrameCipher& cipher, BlobView associated, Sealed& frame) {
  cipher.begin(associated);
  cipher.update(frame.text.data(), frame.text.data(), frame.text.size());
  return cipher.open(std::span<const std::byte, kSealTag>(frame.tag));
}

constexpr auto kZeroKey = "0000000000000000000000000000000000000000000000000000000000000000";
constexpr auto kKey = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
constexpr FrameCipher::Nonce kNonce{0xbebafeca, 0x88f8cadeaddbcefa};  // cafebabe facedbaddecaf888
constexpr auto kPlain =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
constexpr auto kCipher =
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662";

TEST(FrameCipher, GivesTheVectorsOfAes256) {
  FrameCipher zero(key_of(kZeroKey), FrameCipher::Use::seal);
  EXPECT_EQ(seal(zero, {}, {}).tag, from_hex("530f8afbc74536b9a963b4f1c4cb738b"));  // case 13

  FrameCipher again(key_of(kZeroKey), FrameCipher::Use::seal);
  const Sealed block = seal(again, {}, Blob(16));  // case 14
  EXPECT_EQ(block.text, from_hex("cea7403d4d606b6e074ec5d3baf39d18"));
  EXPECT_EQ(block.tag, from_hex("d0d1c8a799996bf0265b98b5d48ab919"));

  const Blob associated = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  FrameCipher out(key_of(kKey), FrameCipher::Use::seal, kNonce);
  Sealed frame = seal(out, associated, from_hex(kPlain));  // case 16
  EXPECT_EQ(frame.text, from_hex(kCipher));
  EXPECT_EQ(frame.tag, from_hex("76fc6ece0f4e1768cddf8853bb2d551b"));
  FrameCipher in(key_of(kKey), FrameCipher::Use::open, kNonce);
  EXPECT_TRUE(open(in, associated, frame));
  EXPECT_EQ(frame.text, from_hex(kPlain));
}

TEST(FrameCipher, CountsItsNonce) {
  FrameCipher counted(key_of(kKey), FrameCipher::Use::seal);
  (void)seal(counted, {}, text("first"));
  FrameCipher second(key_of(kKey), FrameCipher::Use::seal, {.count = 1});
  EXPECT_EQ(seal(counted, {}, text("second")).tag, seal(second, {}, text("second")).tag);
}

TEST(FrameCipher, RefusesAFrameThatIsAlteredRepeatedOrMoved) {
  FrameCipher out(key_of(kKey), FrameCipher::Use::seal);
  const Blob head = text("head");
  const Sealed one = seal(out, head, text("the first frame")), two = seal(out, head, text("x"));
  for (std::size_t i = 0; i < one.text.size() + kSealTag; ++i) {
    Sealed bad = one;
    (i < bad.text.size() ? bad.text[i] : bad.tag[i - bad.text.size()]) ^= std::byte{1};
    FrameCipher in(key_of(kKey), FrameCipher::Use::open);
    EXPECT_FALSE(open(in, head, bad)) << i;
  }
  const auto opens = [&](BlobView associated, Sealed frame, std::uint64_t count) {
    FrameCipher in(key_of(kKey), FrameCipher::Use::open, {.count = count});
    return open(in, associated, frame);
  };
  EXPECT_TRUE(opens(head, one, 0));
  EXPECT_TRUE(opens(head, two, 1));
  EXPECT_FALSE(opens(head, one, 1));  // repeated
  EXPECT_FALSE(opens(head, two, 0));  // moved
  EXPECT_FALSE(opens(text("Head"), one, 0));
  FrameCipher other(key_of(kZeroKey), FrameCipher::Use::open);
  Sealed copy = one;
  EXPECT_FALSE(open(other, head, copy));
}

TEST(FrameCipher, GoesOnUnderAnotherKey) {
  FrameCipher out(key_of(kKey), FrameCipher::Use::seal);
  (void)seal(out, {}, text("before"));
  out.replace_key(key_of(kZeroKey));
  EXPECT_EQ(seal(out, {}, {}).tag, from_hex("530f8afbc74536b9a963b4f1c4cb738b"));
  FrameCipher moved = std::move(out);
  FrameCipher in(key_of(kZeroKey), FrameCipher::Use::open, {.count = 1});
  Sealed frame = seal(moved, text("head"), text("after"));
  EXPECT_TRUE(open(in, text("head"), frame));
}

TEST(Hmac, GivesTheVectorsOfRfc4231) {
  EXPECT_EQ(of(hmac_sha256(Blob(20, std::byte{0x0b}), text("Hi There"))),
            from_hex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  EXPECT_EQ(of(hmac_sha256(text("Jefe"), text("what do ya want for nothing?"))),
            from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
  EXPECT_EQ(of(hmac_sha256(Blob(20, std::byte{0xaa}), Blob(50, std::byte{0xdd}))),
            from_hex("773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"));
  EXPECT_EQ(of(hmac_sha256(Blob(131, std::byte{0xaa}),
                           text("Test Using Larger Than Block-Size Key - Hash Key First"))),
            from_hex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
}

}  // namespace
}  // namespace troupe

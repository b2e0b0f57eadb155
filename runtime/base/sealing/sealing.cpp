#include "troupe/runtime/base/sealing/sealing.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace troupe {
namespace {

constexpr std::size_t kNonce = 12;

unsigned char* raw(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

Secret<32> hmac_sha256(BlobView key, BlobView text) {
  static const unsigned char none = 0;  // OpenSSL takes a null pointer as "the key before"
  Secret<32> out;
  unsigned size = 0;
  const bool good =
      HMAC(EVP_sha256(), key.empty() ? &none : raw(key.data()), static_cast<int>(key.size()),
           raw(text.data()), text.size(), raw(out.data()), &size) != nullptr &&
      size == out.size();
  TROUPE_ASSERT(good, "this OpenSSL cannot do HMAC-SHA-256");
  return out;
}

void FrameCipher::Free::operator()(evp_cipher_ctx_st* context) const noexcept {
  EVP_CIPHER_CTX_free(context);
}

FrameCipher::FrameCipher(const Secret<32>& key, Use use, Nonce first)
    : context_(EVP_CIPHER_CTX_new()), next_(first) {
  const bool good =
      context_ != nullptr && EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr,
                                               raw(key.data()), nullptr, use == Use::seal) == 1;
  TROUPE_ASSERT(good, "this OpenSSL cannot do AES-256-GCM");
}

void FrameCipher::replace_key(const Secret<32>& key) {
  const bool good =
      EVP_CipherInit_ex(context_.get(), nullptr, nullptr, raw(key.data()), nullptr, -1) == 1;
  TROUPE_ASSERT(good, "OpenSSL took no other key");
  next_.count = 0;
}

void FrameCipher::begin(BlobView associated) {
  TROUPE_ASSERT(next_.count + 1 != 0, "a key has served its last frame");
  std::byte nonce[kNonce];
  for (int i = 0; i < 4; ++i) nonce[i] = static_cast<std::byte>(next_.prefix >> (8 * i));
  for (int i = 0; i < 8; ++i) nonce[4 + i] = static_cast<std::byte>(next_.count >> (8 * i));
  ++next_.count;
  int ignored = 0;
  bool good = EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, raw(nonce), -1) == 1;
  if (!associated.empty())
    good = good && EVP_CipherUpdate(context_.get(), nullptr, &ignored, raw(associated.data()),
                                    static_cast<int>(associated.size())) == 1;
  TROUPE_ASSERT(good, "OpenSSL began no frame");
}

void FrameCipher::update(const std::byte* in, std::byte* out, std::size_t size) {
  if (size == 0) return;
  int written = 0;
  const bool good =
      EVP_CipherUpdate(context_.get(), raw(out), &written, raw(in), static_cast<int>(size)) == 1;
  TROUPE_ASSERT(good, "OpenSSL sealed or opened nothing");
}

void FrameCipher::seal(std::span<std::byte, kSealTag> tag) {
  int written = 0;
  unsigned char rest[16];
  const bool good =
      EVP_CipherFinal_ex(context_.get(), rest, &written) == 1 &&
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kSealTag, tag.data()) == 1;
  TROUPE_ASSERT(good, "OpenSSL gave no tag");
}

bool FrameCipher::open(std::span<const std::byte, kSealTag> tag) {
  int written = 0;
  unsigned char rest[16];
  std::byte copy[kSealTag];  // OpenSSL wants memory that it could change
  for (std::size_t i = 0; i < kSealTag; ++i) copy[i] = tag[i];
  return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kSealTag, copy) == 1 &&
         EVP_CipherFinal_ex(context_.get(), rest, &written) == 1;
}

}  // namespace troupe

#include "troupe/runtime/net/keys.hpp"

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/random_bytes.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>
#include <cerrno>
#include <cstring>
#include <vector>

namespace troupe::net {
namespace {

constexpr std::string_view kKeyFileHead = "troupe-key-1 ";
constexpr std::size_t kKeyFileSize = kKeyFileHead.size() + 64 + 1;
constexpr std::string_view kTokenHead = "troupe1-";
constexpr std::size_t kMaxDoor = 256;
constexpr std::size_t kChecksumSize = 8;

Error refuse(const std::string& what) {
  return Error(Code::invalid_argument, what);
}
std::string reason() {
  return std::strerror(errno);
}

void to_hex(const std::byte* data, std::size_t size, char* out) noexcept {
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < size; ++i) {
    const auto value = static_cast<unsigned>(data[i]);
    *out++ = kDigits[value >> 4];
    *out++ = kDigits[value & 15];
  }
}
int from_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}
bool from_hex(std::string_view text, std::byte* out) noexcept {
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = from_digit(text[i]);
    const int low = i + 1 < text.size() ? from_digit(text[i + 1]) : -1;
    if (high < 0 || low < 0) return false;
    *out++ = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

Result<void> write_key_file(const std::string& path, const Secret<32>& key) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST)
    return refuse("key file " + path + " exists already; a key is never overwritten");
  if (!file) return refuse("cannot create key file " + path + ": " + reason());
  char text[kKeyFileSize];
  std::memcpy(text, kKeyFileHead.data(), kKeyFileHead.size());
  to_hex(key.data(), key.size(), text + kKeyFileHead.size());
  text[kKeyFileSize - 1] = '\n';
  // A umask may have removed rights that the owner needs; fchmod restores them.
  const bool written = fchmod(file.get(), 0600) == 0 &&
                       write(file.get(), text, sizeof text) == static_cast<ssize_t>(sizeof text) &&
                       fsync(file.get()) == 0;
  const int error = errno;
  wipe(text, sizeof text);
  if (written) return {};
  unlink(path.c_str());
  return Error(error == ENOSPC ? Code::out_of_disk : Code::invalid_argument,
               "cannot write key file " + path + ": " + std::strerror(error));
}

Result<Secret<32>> read_key_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ELOOP)
    return refuse("key file " + path + " is a symbolic link; give the file itself");
  if (!file) return refuse("cannot open key file " + path + ": " + reason());
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return refuse("cannot inspect " + path + ": " + reason());
  if (!S_ISREG(info.st_mode)) return refuse("key file " + path + " is not a plain file");
  if (info.st_uid != geteuid())
    return refuse("key file " + path + " belongs to uid " + std::to_string(info.st_uid) +
                  ", not to this user (uid " + std::to_string(geteuid()) + ")");
  if ((info.st_mode & 077) != 0)
    return refuse("key file " + path + " can be used by group or world; run: chmod 600 " + path);
  if (info.st_size == 0) return refuse("key file " + path + " is empty");
  char text[kKeyFileSize + 1];
  const ssize_t size = read(file.get(), text, sizeof text);
  Secret<32> key;
  const bool good = size == static_cast<ssize_t>(kKeyFileSize) && text[kKeyFileSize - 1] == '\n' &&
                    std::string_view(text, kKeyFileHead.size()) == kKeyFileHead &&
                    from_hex(std::string_view(text + kKeyFileHead.size(), 64), key.data());
  wipe(text, sizeof text);
  if (!good) return refuse("key file " + path + " does not hold a troupe key");
  return key;
}

std::array<std::byte, kChecksumSize> checksum(const std::vector<std::byte>& data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(data.data(), data.size(), digest, &size, EVP_sha256(), nullptr);
  std::array<std::byte, kChecksumSize> out;
  std::memcpy(out.data(), digest, out.size());
  return out;
}

}  // namespace

std::string PublicKey::str() const {
  std::string text(64, '0');
  to_hex(bytes.data(), bytes.size(), text.data());
  return text;
}
Result<PublicKey> PublicKey::parse(std::string_view hex) {
  PublicKey key;
  if (hex.size() != 64 || !from_hex(hex, key.bytes.data()))
    return refuse("a public key is 64 hexadecimal digits");
  return key;
}

Result<CurveKeys> CurveKeys::from_secret(SecretKey secret) {
  char secret_text[41], public_text[41];
  CurveKeys keys;
  const bool good =
      zmq_z85_encode(secret_text, reinterpret_cast<const std::uint8_t*>(secret.data()), 32) !=
          nullptr &&
      zmq_curve_public(public_text, secret_text) == 0 &&
      zmq_z85_decode(reinterpret_cast<std::uint8_t*>(keys.public_key.bytes.data()), public_text) !=
          nullptr;
  wipe(secret_text, sizeof secret_text);
  if (!good) return Error(Code::unavailable, "this libzmq was built without CURVE");
  keys.secret_key = std::move(secret);
  return keys;
}

Result<CurveKeys> CurveKeys::generate() {
  SecretKey secret;
  if (!try_fill_random({secret.data(), secret.size()}))
    return Error(Code::unavailable, "the system gives no random numbers");
  return from_secret(std::move(secret));
}

Result<ClusterKey> create_cluster_key(const std::string& path) {
  ClusterKey key;
  if (!try_fill_random({key.data(), key.size()}))
    return Error(Code::unavailable, "the system gives no random numbers");
  if (Result<void> written = write_key_file(path, key); !written) return written.error();
  return key;
}
Result<ClusterKey> load_cluster_key(const std::string& path) {
  return read_key_file(path);
}

Result<CurveKeys> create_node_keys(const std::string& path) {
  Result<CurveKeys> keys = CurveKeys::generate();
  if (!keys) return keys;
  if (Result<void> written = write_key_file(path, keys->secret_key); !written)
    return written.error();
  return keys;
}
Result<CurveKeys> load_node_keys(const std::string& path) {
  Result<Secret<32>> secret = read_key_file(path);
  if (!secret) return secret.error();
  return CurveKeys::from_secret(std::move(*secret));
}

std::string encode(const JoinToken& token) {
  TROUPE_ASSERT(token.door.size() <= kMaxDoor, "a door address of more than 256 characters");
  std::vector<std::byte> raw;
  // With the room from the start, no growth leaves a copy of the secret behind.
  raw.reserve(token.head.bytes.size() + token.one_time.size() + token.door.size() + kChecksumSize);
  raw.assign(token.head.bytes.begin(), token.head.bytes.end());
  raw.insert(raw.end(), token.one_time.data(), token.one_time.data() + token.one_time.size());
  const auto* door = reinterpret_cast<const std::byte*>(token.door.data());
  raw.insert(raw.end(), door, door + token.door.size());
  const auto sum = checksum(raw);
  raw.insert(raw.end(), sum.begin(), sum.end());
  std::string text(kTokenHead);
  text.resize(kTokenHead.size() + 2 * raw.size());
  to_hex(raw.data(), raw.size(), text.data() + kTokenHead.size());
  wipe(raw.data(), raw.size());
  return text;
}

bool is_join_token(std::string_view text) {
  return text.substr(0, kTokenHead.size()) == kTokenHead;
}

Result<JoinToken> decode_join_token(std::string_view text) {
  const Error bad = refuse(
      "this is not a whole join token: it begins with troupe1- and is one word; copy it again");
  if (text.substr(0, kTokenHead.size()) != kTokenHead) return bad;
  text.remove_prefix(kTokenHead.size());
  constexpr std::size_t kFixed = 32 + 32 + kChecksumSize;
  if (text.size() % 2 != 0 || text.size() / 2 < kFixed || text.size() / 2 > kFixed + kMaxDoor)
    return bad;
  std::vector<std::byte> raw(text.size() / 2);
  JoinToken token;
  bool good = from_hex(text, raw.data());
  if (good) {
    std::array<std::byte, kChecksumSize> sum;
    std::memcpy(sum.data(), raw.data() + raw.size() - kChecksumSize, kChecksumSize);
    std::memcpy(token.head.bytes.data(), raw.data(), 32);
    std::memcpy(token.one_time.data(), raw.data() + 32, 32);
    wipe(raw.data() + raw.size() - kChecksumSize, kChecksumSize);
    std::vector<std::byte> body(raw.begin(), raw.end() - kChecksumSize);
    good = equal_in_constant_time(checksum(body).data(), sum.data(), kChecksumSize);
    token.door.assign(reinterpret_cast<const char*>(body.data()) + 64, body.size() - 64);
    wipe(body.data(), body.size());
  }
  wipe(raw.data(), raw.size());
  if (!good) return bad;
  return token;
}

}  // namespace troupe::net

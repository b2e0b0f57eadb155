/// Keys and their files: the cluster key, a node's CURVE key pair, and join tokens.
///
///     Result<net::ClusterKey> key = net::load_cluster_key(path);  // refuses a shared file
///     Result<net::CurveKeys> mine = net::CurveKeys::generate();
///     std::string token = net::encode(net::JoinToken{...});  // head address, pin, one-time secret
///
/// Secrets wipe themselves, are never copied and never appear in an error's text.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/secret.hpp"

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::net {

using troupe::equal_in_constant_time;
using troupe::Secret;
using troupe::wipe;

using ClusterKey = Secret<32>;
using SecretKey = Secret<32>;

/// A CURVE public key; not secret.
struct PublicKey {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const PublicKey&, const PublicKey&) = default;
  /// Returns 64 hex digits.
  std::string str() const;
  static Result<PublicKey> parse(std::string_view hex);
};

/// A node's identity on the wire.
struct CurveKeys {
  PublicKey public_key;
  SecretKey secret_key;
  /// Makes a fresh pair. Errors: Unavailable when libzmq was built without CURVE.
  static Result<CurveKeys> generate();
  /// Computes the pair that belongs to a secret.
  static Result<CurveKeys> from_secret(SecretKey secret);
};

/// Creates the file with a fresh 256-bit key: mode 0600, O_EXCL, synced. Errors (InvalidArgument,
/// OutOfDisk): the file exists, or cannot be written; the text names the file and the reason.
Result<ClusterKey> create_cluster_key(const std::string& path);
/// Reads the file. Errors (InvalidArgument, with the reason): it is missing, a link, no plain file,
/// not owned by this user, readable or writable by group or world, or does not hold a key.
Result<ClusterKey> load_cluster_key(const std::string& path);
/// Create and read the file of a node's CURVE pair in the same way. The file holds the secret.
Result<CurveKeys> create_node_keys(const std::string& path);
Result<CurveKeys> load_node_keys(const std::string& path);

/// What a new node needs to join a cluster. It is shown to the person once and allows one join
/// within 24 hours.
struct JoinToken {
  std::string door;    ///< of the head, like tcp://10.0.0.1:6500
  PublicKey head;      ///< the head's key (the pin), which a man in the middle does not have
  SecretKey one_time;  ///< its public half is admitted for Role::join only
};
inline constexpr std::chrono::hours kJoinTokenLife{24};

/// Encodes the token as one word of text without spaces.
std::string encode(const JoinToken& token);
/// Decodes a token. Errors: InvalidArgument for anything that is not a whole token.
Result<JoinToken> decode_join_token(std::string_view text);
/// Returns whether the text begins like a token, whole or not. Such a text is a secret.
bool is_join_token(std::string_view text);

}  // namespace troupe::net

/// The messages between rank 0 and the other ranks over TCP, before they share memory
/// (assembly.hpp). They have a fixed size and the byte order of the host, since all ranks run on
/// one host.
#pragma once

#include "troupe/actors/collective/internal/launch.hpp"
#include "troupe/actors/collective/mesh.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::collective::internal {

constexpr std::uint64_t kGreetingMagic = 0x7a767264'65707274;  // "trpedrvz" as bytes
constexpr std::uint32_t kGreetingVersion = 2;

/// The message of a rank to rank 0, once for each connection.
struct Hello {
  std::uint64_t magic = kGreetingMagic;
  std::uint32_t version = kGreetingVersion;
  std::int32_t rank = 0, world = 0;
  std::int32_t dp = 0, tp = 0, pp = 0;
  std::int32_t pid = 0;
  std::uint32_t nonce = 0;  ///< random; tells a second connection of a process from another process
  std::uint64_t job = 0;
  char host[64] = {};    ///< the host's name, for error texts
  char kernel[96] = {};  ///< boot and network namespace: equal where Unix sockets reach each other
};
static_assert(sizeof(Hello) == 208);

/// The message of rank 0 to a rank. Any number of `waiting` replies may precede the last reply,
/// which has another status.
struct Reply {
  enum Status : std::uint32_t { waiting, complete, refused, unavailable };
  std::uint64_t magic = kGreetingMagic;
  std::uint32_t version = kGreetingVersion;
  std::uint32_t status = waiting;
  /// waiting: the missing ranks; complete: the name for fetch_group(); else the reason. Ends with a
  /// zero byte.
  char text[496] = {};
};
static_assert(sizeof(Reply) == 512);

/// Throws Unavailable when the system has no random numbers.
Hello hello_of(const Launch& launch, const MeshShape& shape);
/// Returns a reply; a text that is too long is cut.
Reply reply_of(Reply::Status status, std::string_view text);
/// Returns bytes from the network as text, up to a zero byte or the end, with '?' for bytes that
/// cannot be printed.
std::string printable(const char* bytes, std::size_t size);
/// Returns why rank 0 refuses this rank, as one sentence, or an empty text if it accepts it.
std::string objection(const Hello& mine, const Hello& theirs);

}  // namespace troupe::collective::internal

/// What ranks and rank 0 say to each other over TCP before they share memory: messages of a fixed
/// size in the byte order of the host, which all of them must share.
#pragma once

#include "troupe/actors/collective/internal/launch.hpp"
#include "troupe/actors/collective/mesh.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::collective::internal {

constexpr std::uint64_t kGreetingMagic = 0x7a767264'65707274;  // "trpedrvz" as bytes
constexpr std::uint32_t kGreetingVersion = 2;

/// Rank to rank 0, once for each connection.
struct Hello {
  std::uint64_t magic = kGreetingMagic;
  std::uint32_t version = kGreetingVersion;
  std::int32_t rank = 0, world = 0;
  std::int32_t dp = 0, tp = 0, pp = 0;
  std::int32_t pid = 0;
  std::uint32_t nonce = 0;  ///< random: the same process when it greets again
  std::uint64_t job = 0;
  char host[64] = {};    ///< its name, for words
  char kernel[96] = {};  ///< boot and network namespace: equal where Unix sockets reach each other
};
static_assert(sizeof(Hello) == 208);

/// Rank 0 to a rank, any number of times; all but `waiting` are the last.
struct Reply {
  enum Status : std::uint32_t { waiting, complete, refused, unavailable };
  std::uint64_t magic = kGreetingMagic;
  std::uint32_t version = kGreetingVersion;
  std::uint32_t status = waiting;
  /// waiting: who is missing; complete: the name for fetch_group(); else why. Ends with a zero.
  char text[496] = {};
};
static_assert(sizeof(Reply) == 512);

/// Throws Unavailable when the system has no random numbers.
Hello hello_of(const Launch& launch, const MeshShape& shape);
/// The text is cut where it is too long.
Reply reply_of(Reply::Status status, std::string_view text);
/// Bytes from the network as text: up to a zero or the end, with '?' for what cannot be printed.
std::string printable(const char* bytes, std::size_t size);
/// Why rank 0 does not let this rank into its world, as one sentence; empty when it does.
std::string objection(const Hello& mine, const Hello& theirs);

}  // namespace troupe::collective::internal

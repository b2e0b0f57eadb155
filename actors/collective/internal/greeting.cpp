#include "troupe/actors/collective/internal/greeting.hpp"

#include "troupe/runtime/base/random_bytes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>

namespace troupe::collective::internal {
namespace {

/// Copies a text and cuts it so that the last byte stays a zero.
template <std::size_t size>
void put(char (&into)[size], std::string_view text) noexcept {
  text.copy(into, size - 1);
}

template <std::size_t size>
std::string text_of(const char (&bytes)[size]) {
  return printable(bytes, size);
}

std::string kernel_text() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char network[48] = {};
  if (::readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = '\0';
  return boot + " " + network;
}

std::string words(const Hello& hello) {
  return "rank " + std::to_string(hello.rank) + " (process " + std::to_string(hello.pid) + " on " +
         text_of(hello.host) + ")";
}

std::string shape_of(const Hello& hello) {
  return "dp=" + std::to_string(hello.dp) + " tp=" + std::to_string(hello.tp) +
         " pp=" + std::to_string(hello.pp);
}

bool same_shape(const Hello& a, const Hello& b) noexcept {
  return a.dp == b.dp && a.tp == b.tp && a.pp == b.pp;
}

}  // namespace

Hello hello_of(const Launch& launch, const MeshShape& shape) {
  Hello hello;
  hello.rank = launch.rank;
  hello.world = launch.world;
  hello.dp = shape.dp;
  hello.tp = shape.tp;
  hello.pp = shape.pp;
  hello.pid = static_cast<std::int32_t>(::getpid());
  fill_random(std::as_writable_bytes(std::span(&hello.nonce, 1)));
  hello.job = launch.job;
  char host[sizeof hello.host] = {};
  if (::gethostname(host, sizeof host - 1) == 0) put(hello.host, host);
  put(hello.kernel, kernel_text());
  return hello;
}

Reply reply_of(Reply::Status status, std::string_view text) {
  Reply reply;
  reply.status = status;
  put(reply.text, text);
  return reply;
}

std::string printable(const char* bytes, std::size_t size) {
  std::string text(bytes, ::strnlen(bytes, size));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

std::string objection(const Hello& mine, const Hello& theirs) {
  if (theirs.version != mine.version) return words(theirs) + " has another version of troupe";
  if (theirs.job != mine.job) return words(theirs) + " belongs to another job, or another start";
  if (theirs.world != mine.world)
    return words(theirs) + " counts " + std::to_string(theirs.world) + " ranks and rank 0 " +
           std::to_string(mine.world) + ": give every rank the same WORLD_SIZE";
  if (theirs.rank < 1 || theirs.rank >= mine.world)
    return words(theirs) + " is no rank from 1 to " + std::to_string(mine.world - 1) +
           ": give every process a RANK of its own";
  if (!same_shape(mine, theirs))
    return words(theirs) + " asks for the mesh " + shape_of(theirs) + " and rank 0 for " +
           shape_of(mine) + ": ask for one mesh on all ranks";
  if (text_of(theirs.kernel) != text_of(mine.kernel))
    return words(theirs) + " is not on the host of rank 0 (" + text_of(mine.host) +
           "), or in another container: start all ranks on one host";
  return "";
}

}  // namespace troupe::collective::internal

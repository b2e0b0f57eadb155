// Tests readers on malformed frames. Whatever the bytes are, a reader ends soon, in little
// memory, with a message or an Error.
#include "tests/runtime/wire/hostile.hpp"
#include "tests/runtime/wire/samples.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <cstring>
#include <ctime>

namespace troupe::wire {
namespace {

using namespace samples;
using Words = std::vector<std::uint64_t>;

constexpr std::size_t kSlow =
#ifdef TROUPE_SANITIZED
    20;
#else
    1;
#endif

Blob frame_of_words(const Words& words, std::uint8_t conversation = 0, std::size_t payload = 0) {
  Blob frame(8 + words.size() * 8 + payload);
  const std::uint32_t count = static_cast<std::uint32_t>(words.size());
  const std::uint32_t rest = 0x01007254U | static_cast<std::uint32_t>(conversation) << 16;
  std::memcpy(frame.data(), &count, 4);
  std::memcpy(frame.data() + 4, &rest, 4);
  std::memcpy(frame.data() + 8, words.data(), words.size() * 8);
  return frame;
}

// Pointers of Cap'n Proto's encoding; offsets count from the word after the pointer.
std::uint64_t struct_pointer(std::int32_t offset, std::uint64_t data, std::uint64_t pointers) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(offset) << 2)) | data << 32 |
         pointers << 48;
}
std::uint64_t list_pointer(std::int32_t offset, std::uint64_t element, std::uint64_t count) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(offset) << 2) | 1) | element << 32 |
         count << 35;
}
std::uint64_t list_tag(std::uint64_t count, std::uint64_t data, std::uint64_t pointers) {
  return count << 2 | data << 32 | pointers << 48;
}
std::uint64_t far_pointer(bool twice, std::uint64_t offset, std::uint64_t segment) {
  return 2 | (twice ? 4 : 0) | offset << 3 | segment << 32;
}

Duration thread_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

/// Decodes the frame and expects that this takes at most 50 ms and 1 MiB. Returns whether it was
/// read.
template <class Decode>
bool survives(Decode decode, const Blob& frame) {
  const std::size_t before = allocated_bytes();
  const Duration start = thread_time();
  bool ok;
  {
    const auto read = decode(BlobView(frame));
    ok = read.ok();
  }
  EXPECT_LE(thread_time() - start, std::chrono::milliseconds(50) * kSlow);
  EXPECT_LE(allocated_bytes() - before, 1U << 20);
  return ok;
}

/// Returns CallMessage{call} with `arguments` as its list pointer, followed by `rest`.
Words call_words(std::uint64_t arguments, const Words& rest) {
  Words words = {struct_pointer(0, 1, 1), 0, struct_pointer(0, 5, 1), 1, 0, 0, 0, 0, arguments};
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

TEST(Hostile, WellFormedByHand) {
  EXPECT_TRUE(survives(decode_call, frame_of_words(call_words(0, {}))));
  EXPECT_TRUE(survives(
      decode_call,
      frame_of_words(call_words(list_pointer(0, 7, 3), {list_tag(1, 2, 1), 1, 0, 0}), 0, 8)));
}

TEST(Hostile, HugeCounts) {
  for (const std::uint64_t count : {1ULL << 12, 1ULL << 20, (1ULL << 29) - 1})
    for (std::uint64_t element = 0; element < 8; ++element)
      EXPECT_FALSE(survives(decode_call,
                            frame_of_words(call_words(list_pointer(0, element, count), Words(8)))))
          << count << " of " << element;
}

TEST(Hostile, ListsOfNothing) {
  // 2^29 elements without size, as a plain list and as structs without fields.
  const std::uint64_t all = (1ULL << 29) - 1;
  EXPECT_FALSE(
      survives(decode_call, frame_of_words(call_words(list_pointer(0, 0, all), Words(1)))));
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{100}, std::uint64_t{4096}, std::uint64_t{4097}, all})
    EXPECT_FALSE(survives(
        decode_call, frame_of_words(call_words(list_pointer(0, 7, 0), {list_tag(count, 0, 0)}))));
  EXPECT_FALSE(
      survives(decode_node, frame_of_words({struct_pointer(0, 1, 1), 33, struct_pointer(0, 1, 1), 1,
                                            list_pointer(0, 7, 0), list_tag(all, 0, 0)},
                                           1)));
}

TEST(Hostile, OverlappingPointersGainNothing) {
  // All arguments name the same 500 refs. 400 of them would become 3.2 MB from a frame of 18 KiB.
  constexpr std::size_t kRefs = 500;
  const auto frame = [](std::size_t count) {
    Words rest = {list_tag(count, 2, 1)};
    for (std::size_t i = 0; i < count; ++i) {
      rest.insert(rest.end(), {1, 0});  // inline bytes
      const std::size_t behind = rest.size() + 1;
      rest.push_back(list_pointer(static_cast<std::int32_t>(1 + count * 3 - behind), 7, kRefs * 2));
    }
    rest.push_back(list_tag(kRefs, 2, 0));
    rest.resize(rest.size() + kRefs * 2, 1);
    return frame_of_words(call_words(list_pointer(0, 7, count * 3), rest));
  };
  EXPECT_TRUE(survives(decode_call, frame(1)));
  EXPECT_FALSE(survives(decode_call, frame(2)));
  EXPECT_FALSE(survives(decode_call, frame(400)));
}

TEST(Hostile, Cycles) {
  // A root that is its own body, a body that is its own message, and pointers to themselves.
  survives(decode_call, frame_of_words({struct_pointer(-1, 1, 1), 0}));
  survives(decode_call, frame_of_words({struct_pointer(0, 1, 1), 0, struct_pointer(-2, 5, 1)}));
  survives(decode_call, frame_of_words({struct_pointer(0, 1, 1), 0, struct_pointer(-3, 1, 1)}));
  for (std::int32_t offset = -9; offset < 2; ++offset)
    for (std::uint64_t element = 0; element < 8; ++element)
      survives(decode_call, frame_of_words(call_words(list_pointer(offset, element, 3), Words(3))));
}

TEST(Hostile, DeepNesting) {
  // The schema is finite, so the depth is in members that no reader visits. It must cost nothing
  // there.
  Words words = call_words(0, {});
  words[2] = struct_pointer(0, 5, 2);  // a later version's pointer
  while (words.size() < kMaxMessage / 8) words.push_back(struct_pointer(0, 0, 1));
  survives(decode_call, frame_of_words(words));
  words.insert(words.end(), 1'000'000 - words.size(), struct_pointer(0, 0, 1));
  EXPECT_FALSE(survives(decode_call, frame_of_words(words)));
  EXPECT_FALSE(survives(decode_call, frame_of_words(Words(1'000, struct_pointer(0, 0, 1)))));
}

TEST(Hostile, FarPointers) {
  for (const bool twice : {false, true})
    for (const std::uint64_t segment : {0ULL, 1ULL, 7ULL, 0xffffffffULL})
      for (const std::uint64_t offset : {0ULL, 1ULL, 2ULL, 8ULL, 9ULL, (1ULL << 29) - 1}) {
        const std::uint64_t pointer = far_pointer(twice, offset, segment);
        survives(decode_call, frame_of_words({pointer, pointer, pointer}));  // a loop
        survives(decode_call, frame_of_words({struct_pointer(0, 1, 1), 0, pointer}));
        survives(decode_call, frame_of_words(call_words(pointer, {pointer, pointer, pointer})));
        if (segment != 0) {
          EXPECT_FALSE(survives(decode_call, frame_of_words(call_words(pointer, Words(4)))));
        }
      }
}

TEST(Hostile, CapabilitiesAndReservedPointers) {
  for (const std::uint64_t pointer : {3ULL, 3ULL | 7ULL << 32, ~0ULL, 0xffffffff00000003ULL}) {
    EXPECT_FALSE(survives(decode_call, frame_of_words({pointer})));
    EXPECT_FALSE(survives(decode_call, frame_of_words(call_words(pointer, Words(2)))));
  }
}

/// Mutates frames `times` times and returns how many were read. A message that was read respects
/// the writer's bounds too, so it can be written.
template <class Decode, class Encode>
std::size_t attack(Random& random, const std::vector<Blob>& good, std::uint64_t times,
                   Decode decode, Encode encode, std::size_t& most) {
  std::size_t accepted = 0;
  for (std::uint64_t i = 0; i < times; ++i) {
    Blob frame = good[random.below(good.size())];
    mutate(random, frame);
    frame.shrink_to_fit();  // so that ASan sees a read beyond the end
    const std::size_t before = allocated_bytes();
    const auto read = decode(BlobView(frame));
    most = std::max(most, allocated_bytes() - before);
    if (!read.ok()) continue;
    ++accepted;
    encode(*read);
  }
  return accepted;
}

TEST(Hostile, MutatedFramesOfEveryMessage) {
  constexpr std::uint64_t kFrames = 50'000;
  Random random(2024);
  const Blob payload = random_bytes(random, 64);
  std::vector<Blob> calls, nodes, peers, creations;
  for (std::size_t i = 0; i < 60; ++i) {
    calls.push_back(frame_of(random_call(random, payload.size(), i % 3, true), payload));
    creations.push_back(encode_creation(random_creation(random, payload.size(), true), payload));
  }
  for (int k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < std::variant_size_v<NodeMessage>; ++i)
      nodes.push_back(frame_of(random_node(random, payload.size(), i, true), payload));
    for (std::size_t i = 0; i < std::variant_size_v<PeerMessage>; ++i)
      peers.push_back(frame_of(random_peer(random, payload.size(), i, true), payload));
  }
  std::size_t most = 0;
  FrameWriter writer;
  PeerWriter peer_writer;
  const auto write = [&](const auto& read) { writer.encode(read.message); };
  // Neither nearly all nor nearly no mutated frames are read.
  const auto expect_mixed = [](std::size_t accepted) {
    EXPECT_GT(accepted, kFrames / 50);
    EXPECT_LT(accepted, kFrames - kFrames / 50);
  };
  expect_mixed(attack(random, calls, kFrames, decode_call, write, most));
  expect_mixed(attack(random, nodes, kFrames, decode_node, write, most));
  expect_mixed(attack(
      random, peers, kFrames, decode_peer,
      [&](const auto& read) { peer_writer.encode(read.message, read.payload); }, most));
  expect_mixed(attack(
      random, creations, kFrames, decode_creation,
      [&](const auto& read) { encode_creation(read.message, read.payload); }, most));
  EXPECT_LE(most, 1U << 20);
}

TEST(Hostile, EveryCutOfEveryMessageBetweenAgents) {
  Random random(5);
  for (std::size_t i = 0; i < std::variant_size_v<PeerMessage>; ++i) {
    const Blob frame = frame_of(random_peer(random, 0, i, true), {});
    for (std::size_t size = 0; size < frame.size(); ++size) {
      const Blob cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(survives(decode_peer, cut)) << "member " << i << " at " << size;
    }
  }
}

TEST(Hostile, EveryFlippedBitOfEveryMessageBetweenAgents) {
  Random random(6);
  const Blob payload = random_bytes(random, 16);
  PeerWriter writer;
  for (std::size_t i = 0; i < std::variant_size_v<PeerMessage>; ++i) {
    Blob frame = frame_of(random_peer(random, payload.size(), i, true), payload);
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
      frame[bit / 8] ^= std::byte(1U << bit % 8);
      const auto read = decode_peer(frame);
      if (read.ok()) writer.encode(read->message, read->payload);
      frame[bit / 8] ^= std::byte(1U << bit % 8);
    }
  }
}

TEST(Hostile, RandomBytes) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    Words words(1 + random.below(40));
    const bool sparse = random.chance(0.7);
    for (std::uint64_t& word : words) word = sparse ? random() & random() & random() : random();
    if (random.chance(0.8)) words[0] = struct_pointer(0, 1, 1);
    survives(decode_call, frame_of_words(words, 0, 16));
    survives(decode_node, frame_of_words(words, 1, 16));
    survives(decode_peer, frame_of_words(words, 2, 16));
    survives(decode_creation, frame_of_words(words, 6, 16));
    EXPECT_FALSE(survives(decode_call, random_bytes(random, random.below(100))));
  }
}

}  // namespace
}  // namespace troupe::wire

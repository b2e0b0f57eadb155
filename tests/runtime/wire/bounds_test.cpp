// Tests what a reader refuses, field by field, and what a writer cuts. The messages are made with
// the schema itself, since the product's writer would not write them.
#include "samples.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <capnp/message.h>
#include <gtest/gtest.h>
#include <cstring>

#include "schema/call.capnp.h"
#include "schema/node.capnp.h"
#include "schema/peer.capnp.h"

namespace troupe::wire {
namespace {

using namespace samples;

/// The head of schema/call.capnp.
struct Head {
  std::uint32_t words = 0;
  std::uint16_t magic = 0x7254;
  std::uint8_t conversation = 0;
  std::uint8_t layout = 1;
};

Blob with_head(const void* words, std::size_t count, Head head, std::size_t payload = 0) {
  Blob frame(8 + count * 8 + payload);
  head.words = static_cast<std::uint32_t>(count);
  std::memcpy(frame.data(), &head, sizeof head);
  if (count != 0) std::memcpy(frame.data() + 8, words, count * 8);
  return frame;
}

/// Returns a frame of the message that `fill` makes, and `payload` bytes beside it.
template <class Root, class Fill>
Blob frame_with(Fill fill, std::size_t payload = 0) {
  capnp::MallocMessageBuilder message(1 << 17);
  fill(message.initRoot<Root>());
  const auto segment = message.getSegmentsForOutput()[0];
  Head head;
  if (std::is_same_v<Root, schema::NodeMessage>) head.conversation = 1;
  if (std::is_same_v<Root, schema::PeerMessage>) head.conversation = 2;
  if (std::is_same_v<Root, schema::Creation>) head.conversation = 6;
  return with_head(segment.begin(), segment.size(), head, payload);
}
template <class Fill>
Blob call_with(Fill fill, std::size_t payload = 0) {
  return frame_with<schema::CallMessage>(fill, payload);
}
template <class Fill>
Blob node_with(Fill fill, std::size_t payload = 0) {
  return frame_with<schema::NodeMessage>(fill, payload);
}

template <class Decoded>
void expect_refused(const Decoded& read, Code code, const char* words) {
  ASSERT_FALSE(read.ok()) << "accepted, though: " << words;
  EXPECT_EQ(read.error().code(), code) << read.error().what();
  EXPECT_NE(read.error().message().find(words), std::string::npos) << read.error().what();
}
void refuses_call(const Blob& frame, const char* words) {
  expect_refused(decode_call(frame), Code::invalid_argument, words);
}
void refuses_node(const Blob& frame, const char* words) {
  expect_refused(decode_node(frame), Code::invalid_argument, words);
}

Blob patched(Blob frame, const Head& head) {
  std::memcpy(frame.data(), &head, sizeof head);
  return frame;
}

TEST(Bounds, FrameHead) {
  const Blob frame = frame_of(CallMessage(Call{}), {});
  Head head;
  std::memcpy(&head, frame.data(), sizeof head);
  const auto with = [&](auto change) {
    Head other = head;
    change(other);
    return patched(frame, other);
  };
  refuses_call({}, "shorter than its head");
  refuses_call(Blob(7), "shorter than its head");
  refuses_call(Blob(8), "does not begin like one");
  for (const std::uint32_t words : {0U, head.words + 1, 0x1fffffffU, 0x80000000U, 0xffffffffU})
    refuses_call(with([&](Head& h) { h.words = words; }), "shorter than its message");
  refuses_call(with([](Head& h) { h.magic ^= 1; }), "does not begin like one");
  refuses_call(with([](Head& h) { h.conversation = 1; }), "another conversation");
  expect_refused(decode_call(with([](Head& h) { h.layout = 2; })), Code::unavailable,
                 "unsupported frame layout 2");
  refuses_node(frame, "another conversation");
}

TEST(Bounds, AMessageAboveTheLimitIsRefusedThoughItIsThere) {
  const std::vector<std::uint64_t> words(kMaxMessage / 8 + 1);
  refuses_call(with_head(words.data(), words.size(), Head{}), "message too large");
}

TEST(Bounds, AnUnknownMemberIsUnsupported) {
  // The discriminant is in the first 16 bits of the root struct, after the root pointer.
  Blob frame = frame_of(CallMessage(Recall{}), {});
  const std::uint16_t member = 77;
  std::memcpy(frame.data() + 16, &member, sizeof member);
  expect_refused(decode_call(frame), Code::unavailable, "unsupported message 77");
  frame = frame_of(NodeMessage(Blocked{}), {});
  std::memcpy(frame.data() + 16, &member, sizeof member);
  expect_refused(decode_node(frame), Code::unavailable, "unsupported message 77");
}

TEST(Bounds, InlineValuesLieInThePayload) {
  const auto frame = [](std::uint32_t offset, std::uint32_t size, std::size_t payload) {
    return call_with(
        [&](schema::CallMessage::Builder m) {
          auto value = m.initReply().initValue();
          value.initInlineBytes(0);
          value.setOffsetBytes(offset);
          value.setSizeBytes(size);
        },
        payload);
  };
  EXPECT_TRUE(decode_call(frame(0, 0, 0)).ok());
  EXPECT_TRUE(decode_call(frame(16, 0, 16)).ok());
  EXPECT_TRUE(decode_call(frame(4, 12, 16)).ok());
  EXPECT_TRUE(decode_call(frame(0, 4096, 4096)).ok());
  for (const auto& [offset, size] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {17, 0}, {0, 17}, {5, 12}, {0xffffffff, 1}, {0xfffffff0, 0x20}, {8, 0xffffffff}})
    EXPECT_FALSE(decode_call(frame(offset, size, 16)).ok()) << offset << " + " << size;
  refuses_call(frame(0, 4097, 8192), "too large");
}

TEST(Bounds, ListsOfACall) {
  refuses_call(call_with([](schema::CallMessage::Builder m) { m.initCall().initArguments(4097); }),
               "arguments has 4097 entries");
  refuses_call(call_with([](schema::CallMessage::Builder m) {
                 m.initReply().initValue().initInlineBytes(513);
               }),
               "refs has 513 entries");
  refuses_call(call_with([](schema::CallMessage::Builder m) { m.initCall().initArguments(1); }),
               "argument has no value");
  const auto doomed = decode_call(call_with([](schema::CallMessage::Builder m) {
    m.initCall().initArguments(1)[0].initError(1)[0].setMessage("too large");
  }));
  ASSERT_TRUE(doomed.ok());  // a call that its sender could not build ends in this error
  EXPECT_EQ(std::get<Call>(doomed->message).arguments.at(0).error->message, "too large");
}

TEST(Bounds, Errors) {
  const auto error = [](auto fill, unsigned count = 1) {
    return call_with([&](schema::CallMessage::Builder m) {
      auto chain = m.initReply().initValue().initError(count);
      if (count > 0) fill(chain);
    });
  };
  using Chain = capnp::List<schema::ErrorEntry>::Builder;
  const std::string longer(kMaxText + 1, 'x');
  const std::string stack(kMaxStack + 1, 'x');
  refuses_call(error([](Chain) {}, 0), "has no error");
  refuses_call(error([](Chain) {}, 17), "chain has 17 entries");
  refuses_call(error([](Chain c) { c[0].setOutcome(3); }), "outcome is out of range");
  refuses_call(error([&](Chain c) { c[0].setMessage(longer); }), "error message has 2049 bytes");
  refuses_call(error([&](Chain c) { c[0].setRemoteStack(stack); }), "error stack has 4097 bytes");
  refuses_call(error([&](Chain c) { c[0].setLastLines(stack); }), "last lines has 4097 bytes");
  const std::string full(kMaxText, 'x');
  refuses_call(error(
                   [&](Chain c) {
                     for (auto entry : c) entry.setMessage(full);
                   },
                   5),
               "error message has 2048 bytes, more than 0");
  const auto read = decode_call(error([](Chain c) { c[0].setCode(60000); }));
  ASSERT_TRUE(read.ok());  // the code of a newer peer is kept
  EXPECT_EQ(static_cast<int>(std::get<Reply>(read->message).value.error->code), 60000);
}

TEST(Bounds, TextsListsAndEnumerationsOfTheNode) {
  using M = schema::NodeMessage::Builder;
  const std::string longer(kMaxText + 1, 'x');
  refuses_node(node_with([&](M m) { m.initHello().setBuild(longer); }), "build has 2049 bytes");
  refuses_node(node_with([&](M m) { m.initFindActor().setName(longer); }), "actor name");
  refuses_node(node_with([&](M m) { m.initShutdown().setWhy(longer); }), "reason");
  refuses_node(node_with([](M m) { m.initHello().setKind(3); }), "process kind is out of range");
  refuses_node(node_with([](M m) { m.initHello().initArguments(4097); }), "arguments has 4097");
  refuses_node(node_with([](M m) { m.initHello().initLibraries(65); }), "libraries has 65");
  refuses_node(node_with([&](M m) { m.initHello().setProgram(longer + longer); }),
               "program has 4098 bytes");
  refuses_node(node_with([](M m) { m.initActorUpdate().setState(4); }), "actor state");
  refuses_node(node_with([](M m) { m.initChannel().setSide(2); }), "channel side");
  refuses_node(node_with([](M m) { m.initLeaseGranted().initGpus(65); }), "gpus has 65 entries");
  refuses_node(node_with([](M m) { m.initNodes().initRows(4097); }), "rows has 4097");
  const auto demand = [](auto fill) {
    return node_with([&](M m) { fill(m.initRequestLease().initDemand()); });
  };
  using S = schema::ResourceDemand::Builder;
  refuses_node(demand([](S s) { s.setPlacement(4); }), "placement is out of range");
  refuses_node(demand([](S s) { s.setCpuTenThousandths(-1); }), "cpus is negative");
  refuses_node(demand([](S s) { s.setGpuTenThousandths(-1); }), "gpus is negative");
  refuses_node(demand([](S s) { s.initResources(1)[0].setTenThousandths(-1); }), "is negative");
  refuses_node(demand([](S s) { s.initResources(65); }), "resources has 65 entries");
  refuses_node(demand([](S s) { s.initLabels(65); }), "labels has 65 entries");
  refuses_node(demand([&](S s) { s.initLabels(1)[0].setKey(longer); }), "label key");
}

TEST(Bounds, MessagesBetweenAgents) {
  using M = schema::PeerMessage::Builder;
  const auto refuses = [](const char* words, auto fill, std::size_t payload = 0) {
    expect_refused(decode_peer(frame_with<schema::PeerMessage>(fill, payload)),
                   Code::invalid_argument, words);
  };
  const auto takes = [](auto fill, std::size_t payload) {
    const auto read = decode_peer(frame_with<schema::PeerMessage>(fill, payload));
    EXPECT_TRUE(read.ok()) << read.error().what();
  };
  refuses("refs has 4097 entries", [](M m) { m.initFrame().initRefs(4097); });
  refuses("refs has 16385 entries",
          [](M m) { m.initReady().initRefs(16385), m.getReady().initValue().setRemoteBytes(1); });
  refuses("value is of a kind that does not cross", [](M m) { m.initReady().initValue(); });
  refuses("value is of a kind that does not cross",
          [](M m) { m.initReady().initValue().initShared(); });
  takes([](M m) { m.initReady().initValue().setRemoteBytes(1ULL << 60); }, 0);
  refuses("gpus has 65 entries", [](M m) { m.initLeaseGranted().initGpus(65); });
  refuses("refusal has no error", [](M m) { m.initPullRefused(); });
  refuses("key has not 32 bytes", [](M m) { m.initBulkOffer().initKey(31); });
  refuses("key has not 32 bytes", [](M m) { m.initBulkOffer(); });
  const auto data = [](std::uint64_t offset, std::uint64_t total) {
    return [offset, total](M m) {
      auto data = m.initPullData();
      data.setOffsetBytes(offset);
      data.setTotalBytes(total);
    };
  };
  takes(data(8, 24), 16);
  refuses("payload reaches beyond", data(9, 24), 16);
  refuses("payload reaches beyond", data(25, 24), 0);
  refuses("payload reaches beyond", data(~0ULL, 24), 16);
  takes(data(0, kMaxPeerPayload), kMaxPeerPayload);
  refuses("payload is too large", data(0, 1 << 20), kMaxPeerPayload + 1);
  refuses("refusal has no error", [](M m) { m.initPullRefused().initError(0); });
  refuses("payload reaches beyond", [](M m) { m.initProgramData().setTotalBytes(7); }, 8);
  expect_refused(decode_peer(frame_of(NodeMessage(Blocked{}), {})), Code::invalid_argument,
                 "another conversation");
  Blob unknown = frame_of(PeerMessage(PeerAwait{}), {});
  unknown[16] = std::byte{99};  // the member follows the root pointer
  expect_refused(decode_peer(unknown), Code::unavailable, "unsupported message 99");
  expect_refused(decode_creation(frame_with<schema::Creation>(
                     [](schema::Creation::Builder c) { c.initRefs(4097); })),
                 Code::invalid_argument, "refs has 4097 entries");
}

TEST(Bounds, AWriterCutsTextsAtAWholeCharacter) {
  std::string name(kMaxText - 1, 'x');
  name += "\xe2\x82\xac and more";  // three bytes, of which one would fit
  const auto read = decode_node(frame_of(NodeMessage(Shutdown{name}), {}));
  ASSERT_TRUE(read.ok()) << read.error().what();
  EXPECT_EQ(std::get<Shutdown>(read->message).why, std::string(kMaxText - 1, 'x'));
  const std::string bytes(kMaxText + 9, '\x80');  // not UTF-8: still cut, still read
  EXPECT_TRUE(decode_node(frame_of(NodeMessage(Shutdown{bytes}), {})).ok());
}

TEST(Bounds, AnErrorAlwaysFitsAFrame) {
  std::shared_ptr<const ErrorInfo> chain;
  for (int i = 0; i < 40; ++i) {
    ErrorInfo e;
    e.code = Code::task_failed;
    e.message = std::string(5000, static_cast<char>('a' + i % 26));
    e.origin = {std::string(5000, 'n'), i, std::string(5000, 'f'), i};
    e.type = std::string(5000, 't');
    e.remote_stack = std::string(50000, 's');
    e.last_lines = std::string(50000, 'l');
    e.cause = chain;
    chain = std::make_shared<const ErrorInfo>(std::move(e));
  }
  Reply reply;
  reply.value.kind = Value::Kind::error;
  reply.value.error = chain;
  const Blob frame = frame_of(CallMessage(reply), {});
  EXPECT_LE(frame.size(), 10'000u);
  const auto read = decode_call(frame);
  ASSERT_TRUE(read.ok()) << read.error().what();
  const auto& error = std::get<Reply>(read->message).value.error;
  EXPECT_EQ(error->message, std::string(kMaxText, 'n'));  // the outermost one is kept
  EXPECT_EQ(error->origin.pid, 39);

  // A chain of short errors keeps sixteen.
  chain.reset();
  for (int i = 0; i < 40; ++i) {
    ErrorInfo e;
    e.message = std::to_string(i);
    e.cause = chain;
    chain = std::make_shared<const ErrorInfo>(std::move(e));
  }
  reply.value.error = chain;
  const auto short_read = decode_call(frame_of(CallMessage(reply), {}));
  ASSERT_TRUE(short_read.ok());
  std::size_t depth = 0;
  for (auto e = std::get<Reply>(short_read->message).value.error; e; e = e->cause) ++depth;
  EXPECT_EQ(depth, kMaxCauses);
}

TEST(Bounds, TheLastLinesAndTheStackOfADeathStayWithItsCauses) {
  ErrorInfo inner, outer;
  inner.message = "the worker died";
  inner.remote_stack = std::string(3072, 's');
  for (int i = 0; i < 1000; ++i) inner.last_lines += "line " + std::to_string(i) + "\n";
  outer.message = std::string(2000, 'x');
  outer.cause = std::make_shared<const ErrorInfo>(inner);
  Reply reply;
  reply.value.kind = Value::Kind::error;
  reply.value.error = std::make_shared<const ErrorInfo>(outer);
  const auto read = decode_call(frame_of(CallMessage(reply), {}));
  ASSERT_TRUE(read.ok()) << read.error().what();
  const auto& cause = std::get<Reply>(read->message).value.error->cause;
  ASSERT_NE(cause, nullptr);
  EXPECT_EQ(cause->message, inner.message);
  EXPECT_EQ(cause->remote_stack, inner.remote_stack);
  EXPECT_TRUE(cause->last_lines.starts_with("line ")) << "whole lines";
  EXPECT_TRUE(cause->last_lines.ends_with("\nline 999\n")) << "the last ones";
  EXPECT_GT(cause->last_lines.size(), 2000u);

  const auto died = decode_node(frame_of(
      NodeMessage(PeerDied{7, "killed", 1, std::string(9000, 's'), std::string(9000, 'l')}), {}));
  ASSERT_TRUE(died.ok()) << died.error().what();
  EXPECT_EQ(std::get<PeerDied>(died->message).stack.size(), kMaxStack);
  EXPECT_EQ(std::get<PeerDied>(died->message).last_lines.size(), kMaxLastLines);
}

TEST(Bounds, AQuestionAboutALogHasBounds) {
  const auto ask = [](std::uint32_t most, std::uint32_t wait_ms, std::uint8_t about) {
    return decode_node(node_with([&](schema::NodeMessage::Builder m) {
      auto inquire = m.initInquire();
      inquire.setAbout(about);
      inquire.setMostBytes(most);
      inquire.setWaitMs(wait_ms);
    }));
  };
  EXPECT_TRUE(ask(kMaxLogBatch, kMaxLogWait, 2));
  expect_refused(ask(kMaxLogBatch + 1, 0, 2), Code::invalid_argument, "mostBytes");
  expect_refused(ask(0, kMaxLogWait + 1, 2), Code::invalid_argument, "waitMs");
  expect_refused(ask(0, 0, 6), Code::invalid_argument, "about");
  const auto peer = [](std::uint32_t most, std::uint32_t wait_ms) {
    return decode_peer(frame_with<schema::PeerMessage>([&](schema::PeerMessage::Builder m) {
      auto inquire = m.initInquire();
      inquire.setMostBytes(most);
      inquire.setWaitMs(wait_ms);
    }));
  };
  expect_refused(peer(kMaxLogBatch + 1, 0), Code::invalid_argument, "mostBytes");
  expect_refused(peer(0, kMaxLogWait + 1), Code::invalid_argument, "waitMs");
}

TEST(Bounds, TheUserWhoStopsAJobHasABound) {
  const auto fill = [](auto inquire, const std::string& user) {
    inquire.initStopJob().setLow(1);
    inquire.setStopUser(user.c_str());
  };
  const auto node = [&](const std::string& user) {
    return decode_node(node_with([&](schema::NodeMessage::Builder m) {
      auto inquire = m.initInquire();
      inquire.setAbout(5);
      fill(inquire, user);
    }));
  };
  const auto peer = [&](const std::string& user) {
    return decode_peer(frame_with<schema::PeerMessage>(
        [&](schema::PeerMessage::Builder m) { fill(m.initInquire(), user); }));
  };
  const std::string fits(kMaxUser, 'u'), too_long(kMaxUser + 1, 'u');
  EXPECT_TRUE(node(fits) && peer(fits));
  expect_refused(node(too_long), Code::invalid_argument, "user");
  expect_refused(peer(too_long), Code::invalid_argument, "user");
}

TEST(Bounds, AQuestionAboutRowsHasBounds) {
  const std::string fits(kMaxText, 'x'), too_long(kMaxText + 1, 'x');
  const auto fill = [](schema::ListQuestion::Builder rows, int member, const std::string& text) {
    if (member == 0) rows.setWhere(text.c_str());
    if (member == 1) rows.setSort(text.c_str());
    if (member == 2) rows.setAfter(text.c_str());
  };
  const char* const names[] = {"where", "sort", "after"};
  for (int member = 0; member < 3; ++member) {
    const auto inquire = [&](const std::string& text) {
      return decode_node(node_with(
          [&](schema::NodeMessage::Builder m) { fill(m.initInquire().initRows(), member, text); }));
    };
    const auto ask = [&](const std::string& text) {
      return decode_node(node_with(
          [&](schema::NodeMessage::Builder m) { fill(m.initAskRows().initRows(), member, text); }));
    };
    const auto peer = [&](const std::string& text) {
      return decode_peer(frame_with<schema::PeerMessage>(
          [&](schema::PeerMessage::Builder m) { fill(m.initInquire().initRows(), member, text); }));
    };
    EXPECT_TRUE(inquire(fits) && ask(fits) && peer(fits));
    expect_refused(inquire(too_long), Code::invalid_argument, names[member]);
    expect_refused(ask(too_long), Code::invalid_argument, names[member]);
    expect_refused(peer(too_long), Code::invalid_argument, names[member]);
  }
  refuses_node(
      node_with([&](schema::NodeMessage::Builder m) { m.initGiveRows().setWhy(too_long.c_str()); }),
      "why");
}

}  // namespace
}  // namespace troupe::wire

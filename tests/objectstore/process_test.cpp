// Tests the store with real processes: a writer and a reader that are killed with SIGKILL, and a
// process that tries to damage memory of others. The children are forked (these tests run one
// thread). They use only inherited descriptors, not the parent's mappings.
#include "node.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

namespace troupe::objectstore::process_test {
namespace {

// A child with a byte stream each way. It is killed at the end of the test at the latest.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = Fd(ends[0]);
    Fd theirs(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      ours_.reset();
      body(theirs.get());
      _exit(0);
    }
  }
  ~Child() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  template <class T>
  bool receive(T& value) {
    pollfd ready{ours_.get(), POLLIN, 0};
    return poll(&ready, 1, 10'000) == 1 &&
           recv(ours_.get(), &value, sizeof value, MSG_WAITALL) == sizeof value;
  }

 private:
  Fd ours_;
  pid_t pid_ = 0;
};

template <class T>
void tell(int socket, const T& value) {
  if (send(socket, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) _exit(2);
}
[[noreturn]] void wait_to_be_killed() {
  for (;;) pause();
}

TEST(Process, AKilledWritersAdoptedObjectsAreReadAndThenFreed) {
  Node node;
  Client& reader = node.join();
  Membership membership = node.host->register_process().value();
  const std::uint32_t index = membership.process;
  ExtentGrant grant = node.host->grant(index, 1).value();
  const ExtentId extent = grant.id;
  Child child([&](int socket) {
    auto client = Client::attach(std::move(membership), {}).value();
    client->add_extent(std::move(grant)).value();
    for (const char* text : {"adopted", "its own"}) {
      Allocation made = std::get<Allocation>(client->create(7).value());
      std::memcpy(made.bytes().data(), text, 7);
      tell(socket, client->seal(std::move(made)));
    }
    auto half = std::get<Allocation>(client->create(100).value());
    half.bytes()[0] = std::byte{1};
    tell(socket, 'w');
    wait_to_be_killed();
  });
  Location adopted, own;
  char writing = 0;
  ASSERT_TRUE(child.receive(adopted) && child.receive(own) && child.receive(writing));
  node.host->confirm_process(index).value();
  node.host->confirm_extent(index, extent).value();
  node.host->adopt(index, adopted).value();
  child.kill();
  node.host->process_died(index);
  node.pump();
  EXPECT_EQ(node.read(reader, adopted), "adopted");
  EXPECT_EQ(node.open(reader, own).status, OpenStatus::moved);
  EXPECT_EQ(node.host->free(adopted).value(), Freed::done);
  node.pump();
  EXPECT_EQ(node.host->stats().committed, 0u);
  EXPECT_EQ(node.host->stats().processes.size(), 2u) << "the agent and the reader remain";
}

TEST(Process, AKilledReadersPinsCountNoMore) {
  Node node;
  Client& writer = node.join();
  const Location at = node.put_shared(writer, "text");
  Membership membership = node.host->register_process().value();
  const std::uint32_t index = membership.process;
  ReaderSegment segment = node.host->segment_for_reader(writer.process()).value();
  ReaderExtent extent = node.host->extent_for_reader(at.extent).value();
  Child child([&](int socket) {
    auto client = Client::attach(std::move(membership), {}).value();
    client->add_segment(std::move(segment)).value();
    client->add_reader_extent(std::move(extent)).value();
    const Opened view = client->open(at);
    tell(socket, view.status == OpenStatus::pinned && Node::text(view.pinned) == "text");
    wait_to_be_killed();
  });
  bool pinned = false;
  ASSERT_TRUE(child.receive(pinned) && pinned);
  node.host->confirm_process(index).value();
  EXPECT_EQ(node.host->free(at).value(), Freed::waits);
  node.host->poll();
  EXPECT_EQ(node.host->stats().waiting, 1u) << "its view is alive";
  child.kill();
  node.host->process_died(index);
  node.pump();
  EXPECT_EQ(node.host->stats().waiting, 0u);
  EXPECT_EQ(writer.stats().objects, 0u);
}

// The newest location, from the parent to its reader. It is whole when both counts agree.
struct Board {
  std::atomic<std::uint64_t> before{0}, after{0};
  std::array<std::atomic<std::uint64_t>, 4> words{};  // slot, generation, offset, tag
  std::atomic<std::uint64_t> reads{0}, stale{0}, wrong{0};
  std::atomic<bool> stop{false};
};

void read_until_stopped(Client& client, Board& board, const Location& example) {
  while (!board.stop) {
    Location at = example;
    const std::uint64_t count = board.after;
    at.slot = static_cast<std::uint32_t>(board.words[0]);
    at.generation = board.words[1];
    at.offset = board.words[2];
    at.tag = static_cast<std::uint32_t>(board.words[3]);
    if (board.before != count) continue;
    const Opened view = client.open(at);
    if (view.status != OpenStatus::pinned) {
      ++board.stale;
      continue;
    }
    for (const std::byte byte : view.pinned.bytes())
      board.wrong += byte != static_cast<std::byte>(at.tag);
    ++board.reads;
  }
}

TEST(Process, AReaderInAnotherProcessNeverSeesRecycledBytes) {
  Node node;
  Client& writer = node.join();
  const Location example = node.put_shared(writer, std::string(2000, '\0'));
  Membership membership = node.host->register_process().value();
  const std::uint32_t index = membership.process;
  ReaderSegment segment = node.host->segment_for_reader(writer.process()).value();
  ReaderExtent extent = node.host->extent_for_reader(example.extent).value();
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Board& board = *new (shared) Board;
  {
    Child child([&](int socket) {
      auto client = Client::attach(std::move(membership), {}).value();
      client->add_segment(std::move(segment)).value();
      client->add_reader_extent(std::move(extent)).value();
      tell(socket, 'r');
      read_until_stopped(*client, board, example);
      tell(socket, 'd');
    });
    char done = 0;
    ASSERT_TRUE(child.receive(done));
    node.host->confirm_process(index).value();
    Location last = example;
    std::uint64_t puts = 0, waited = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((puts < 2000 || board.reads < 2000) && std::chrono::steady_clock::now() < end) {
      const auto value = static_cast<std::uint8_t>(++puts);
      Allocation made = node.create(writer, 2000).value();
      ASSERT_FALSE(made.bytes().empty());
      std::memset(made.bytes().data(), value, made.bytes().size());
      const Location at = writer.seal(std::move(made), value);
      node.host->adopt(writer.process(), at).value();
      ASSERT_EQ(at.extent, example.extent) << "one extent is enough: memory is recycled";
      ++board.before;
      board.words[0] = at.slot;
      board.words[1] = at.generation;
      board.words[2] = at.offset;
      board.words[3] = at.tag;
      ++board.after;
      if (puts % 8 == 0) std::this_thread::yield();
      waited += node.host->free(last).value() == Freed::waits;
      last = at;
      node.host->poll();
      node.pump();
    }
    board.stop = true;
    ASSERT_TRUE(child.receive(done));
    EXPECT_EQ(board.wrong, 0u);
    EXPECT_GE(board.reads, 2000u);
    EXPECT_GE(puts, 2000u);
    RecordProperty("frees_that_waited", static_cast<int>(waited));
  }
  node.host->process_died(index);
  node.pump();
  EXPECT_EQ(node.host->stats().waiting, 0u);
  munmap(shared, sizeof(Board));
}

// A process that has every descriptor of a reader must not be able to write.
TEST(Process, AnotherProcessCannotWriteWhatItMayRead) {
  Node node;
  Client& writer = node.join();
  const Location at = node.put_shared(writer, "mine");
  const ReaderSegment segment = node.host->segment_for_reader(writer.process()).value();
  const ReaderExtent extent = node.host->extent_for_reader(at.extent).value();
  const Membership membership = node.host->register_process().value();
  Child child([&](int socket) {
    int failures = 0;
    for (const int fd : {segment.memory.get(), extent.memory.get(), membership.retirements.get()}) {
      void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      failures += map == MAP_FAILED && errno == EPERM;
      failures += pwrite(fd, "x", 1, 0) < 0 && errno == EPERM;
      failures += ftruncate(fd, 0) != 0 && errno == EPERM;
    }
    tell(socket, failures);
  });
  int failures = 0;
  ASSERT_TRUE(child.receive(failures));
  EXPECT_EQ(failures, 9);
  EXPECT_EQ(node.read(writer, at), "mine");
}

TEST(Process, AWriterThatChangesItsPublicationIsFoundOut) {
  Node node;
  Client& reader = node.join();
  Membership membership = node.host->register_process().value();
  const std::uint32_t index = membership.process;
  ExtentGrant grant = node.host->grant(index, 1).value();
  const ExtentId extent = grant.id;
  const Fd table(dup(membership.publications.get()));
  auto* words = static_cast<std::uint64_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, table.get(), 0));
  ASSERT_NE(words, MAP_FAILED);
  auto client = Client::attach(std::move(membership), {}).value();
  client->add_extent(std::move(grant)).value();
  node.host->confirm_process(index).value();
  EXPECT_FALSE(node.host->confirm_extent(index, extent).ok() &&
               mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, table.get(), 0) !=
                   MAP_FAILED)
      << "a kept descriptor is of no use after sealing";
  Allocation made = std::get<Allocation>(client->create(100).value());
  const Location at = client->seal(std::move(made));
  node.host->adopt(index, at).value();
  ASSERT_EQ(node.open(reader, at).status, OpenStatus::pinned);
  const std::uint64_t offset = words[2], length = words[3];
  for (const std::uint64_t lie : {std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{4096}}) {
    words[2] = lie;
    EXPECT_EQ(node.open(reader, at).status, OpenStatus::invalid);
    words[2] = offset;
    words[3] = lie;
    EXPECT_EQ(node.open(reader, at).status, OpenStatus::invalid);
    Location same = at;  // even when the location claims the same
    same.length = lie;
    const Opened opened = node.open(reader, same);
    EXPECT_TRUE(opened.status == OpenStatus::invalid || lie <= (1u << 20));
    words[3] = length;
  }
  munmap(words, 4096);
}

}  // namespace
}  // namespace troupe::objectstore::process_test

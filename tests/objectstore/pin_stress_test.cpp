// Tests the pin protocol with threads in place of processes, under ThreadSanitizer. (1) The
// protocol over one memory, with the content in plain bytes: a missing happens-before is a data
// race that ThreadSanitizer reports. (2) The real store through its mappings: every byte that is
// read is checked.
#include "node.hpp"
#include "troupe/objectstore/internal/segments.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace troupe::objectstore {
namespace {

using namespace internal;
using Clock = std::chrono::steady_clock;

// Runs until enough was done, at most 10 s. A loaded machine takes longer, but does no less.
template <class Enough>
void run_until(Enough enough) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (!enough() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(PinStress, PlainContentUnderTheProtocol) {
  constexpr int kReaders = 3;
  std::array<PinWord, kReaders> pins{};
  RetirementWord retirement{0};
  Publication publication{};
  std::array<std::uint64_t, 8> content{};   // plain: only the protocol protects it
  std::atomic<std::uint64_t> current{1};    // the location as a message would carry it
  std::atomic<std::uint64_t> recycled{0};   // the agent's notice to the writer
  std::atomic<std::uint64_t> published{0};  // the writer's adopt to the agent
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0}, wrong{0};

  std::vector<std::thread> threads;
  for (int r = 0; r < kReaders; ++r)
    threads.emplace_back([&, r] {
      while (!stop) {
        const std::uint64_t generation = current.load(std::memory_order_relaxed);
        ReaderMemory memory{pins[r], retirement, publication};
        if (PinProtocol<ReaderMemory>::pin(memory, generation) != Pin::held) {
          std::this_thread::yield();
          continue;
        }
        for (const std::uint64_t word : content) wrong += word != generation;
        PinProtocol<ReaderMemory>::unpin(memory, generation);
        if (++reads % 4 == 0) std::this_thread::yield();  // two CPUs for five threads
      }
    });
  threads.emplace_back([&] {  // the writer
    for (std::uint64_t generation = 1; !stop; ++generation) {
      content.fill(generation);
      WriterMemory memory{publication};
      Location at;
      at.length = generation;
      PinProtocol<WriterMemory>::publish(memory, generation, at);
      current.store(generation, std::memory_order_relaxed);
      published.store(generation);
      while (recycled.load() < generation && !stop) std::this_thread::yield();
    }
  });
  threads.emplace_back([&] {  // the agent
    const std::array<const PinWord*, kReaders> tables = {&pins[0], &pins[1], &pins[2]};
    for (std::uint64_t generation = 1; !stop; ++generation) {
      while (published.load() < generation && !stop) std::this_thread::yield();
      const std::uint64_t before = reads.load();  // mostly waits for a reader first
      for (int i = 0; i < 200 && reads.load() == before && !stop; ++i) std::this_thread::yield();
      AgentMemory memory{retirement, tables, 0};
      PinProtocol<AgentMemory>::retire(memory, generation);
      while (!PinProtocol<AgentMemory>::is_clear(memory) && !stop) std::this_thread::yield();
      if (!stop) recycled.store(generation);
    }
  });
  run_until([&] { return reads > 5'000 && published > 1'000; });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(reads, 100u) << "a quiet run proves nothing";
  EXPECT_GT(published, 100u);
}

// Locations that are passed around, newest last. Readers take any of them, so many are stale.
class Board {
 public:
  void post(const Location& at) {
    std::lock_guard lock(mutex_);
    if (posted_.size() == 64) posted_.erase(posted_.begin());
    posted_.push_back(at);
  }
  Location pick(std::uint64_t random) {
    std::lock_guard lock(mutex_);
    return posted_.empty() ? Location{} : posted_[random % posted_.size()];
  }

 private:
  std::mutex mutex_;
  std::vector<Location> posted_;
};

TEST(PinStress, TheRealStoreUnderFreesAndRecycling) {
  HostOptions options = Node::small();
  Node node(options);
  std::mutex agent;  // serializes the agent, which handles one message at a time
  Board board;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0}, stale{0}, wrong{0}, frees{0};
  Client* writers[2] = {&node.join(), &node.join()};
  Client* readers[2] = {&node.join(), &node.join()};

  auto write = [&](Client& client) {
    std::vector<Location> mine;
    while (!stop) {
      std::unique_lock lock(agent);
      Result<Allocation> made = node.create(client, 4096);
      lock.unlock();
      if (!made) std::abort();
      const std::uint64_t value = reads.load() * 2654435761u + mine.size();
      for (std::size_t i = 0; i < 4096; i += 8) std::memcpy(made->bytes().data() + i, &value, 8);
      const Location at = client.seal(*std::move(made), static_cast<std::uint32_t>(value));
      lock.lock();
      node.host->adopt(client.process(), at).value();
      mine.push_back(at);
      board.post(at);
      if (mine.size() > 20) {
        node.host->free(mine.front()).value();
        mine.erase(mine.begin());
        ++frees;
      }
      node.pump();
    }
  };
  auto read = [&](Client& client, std::uint64_t seed) {
    while (!stop) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      const Location at = board.pick(seed >> 33);
      Opened opened = client.open(at);
      if (opened.status == OpenStatus::needs_segment || opened.status == OpenStatus::needs_extent) {
        std::lock_guard lock(agent);
        opened = node.open(client, at);
      }
      if (opened.status != OpenStatus::pinned) {
        ++stale;
        continue;
      }
      std::uint64_t first = 0, word = 0;
      std::memcpy(&first, opened.pinned.bytes().data(), 8);
      wrong += static_cast<std::uint32_t>(first) != at.tag;
      for (std::size_t i = 0; i < 4096; i += 8) {
        std::memcpy(&word, opened.pinned.bytes().data() + i, 8);
        wrong += word != first;
      }
      ++reads;
    }
  };
  std::vector<std::thread> threads;
  for (Client* writer : writers) threads.emplace_back([&, writer] { write(*writer); });
  for (Client* reader : readers)  // two threads of each process
    for (int i = 0; i < 2; ++i) threads.emplace_back([&, reader, i] { read(*reader, 7 + i); });
  run_until([&] { return reads > 10'000 && frees > 2'000; });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  node.pump();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(reads, 100u) << "a quiet run proves nothing";
  EXPECT_GT(frees, 100u);
  EXPECT_EQ(node.host->stats().waiting, 0u) << "no free was forgotten";
  EXPECT_EQ(node.host->stats().objects, writers[0]->stats().objects + writers[1]->stats().objects);
}

TEST(PinStress, DropsAndViewsOfOneProcessOnManyThreads) {
  Node node;
  Client& client = node.join();
  node.put(client, "the first extent");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        Allocation made = std::get<Allocation>(client.create(64).value());
        const int value = t * 10000 + i;
        std::memcpy(made.bytes().data(), &value, sizeof value);
        const Location at = client.seal(std::move(made));
        Opened view = client.open(at);
        if (i % 2 == 0) client.drop(at).value();
        int got = 0;
        std::memcpy(&got, view.pinned.bytes().data(), sizeof got);
        wrong += got != value;
        view.pinned = Pinned();
        if (i % 2 != 0) client.drop(at).value();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(client.stats().objects, 1u);
}

}  // namespace
}  // namespace troupe::objectstore

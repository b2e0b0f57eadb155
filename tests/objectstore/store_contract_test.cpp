// Runs one suite of contracts on every way in which the store keeps objects: in the agent's own
// memory, in shared memory of a process that others read, and in an arena that is too small, with
// the rest on disk. A sealed object is read unchanged as long as it is named or open. A freed
// object is gone, once. An object that cannot be read gives a typed error, and all bytes are
// released.
#include "spilling.hpp"

#include "troupe/runtime/base/random.hpp"

namespace troupe::objectstore {
namespace {

/// A writer and a reader of some store.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual Result<Allocation> create(std::size_t bytes) = 0;
  virtual Location seal(Allocation made) = 0;
  virtual Result<void> adopt(const Location& at) = 0;
  virtual Result<Pinned> look(const Location& at) = 0;
  virtual Result<void> free(const Location& at) = 0;
  /// Delivers all messages that are under way.
  virtual void carry() = 0;
  /// Ends the writer. Returns false when the agent itself writes.
  virtual bool writer_dies() = 0;
  virtual const Host& host() = 0;
  /// Returns the number of objects on disk, with those on their way there.
  virtual std::uint64_t on_disk() = 0;
};

/// Objects of the agent's own: those that it fetches or reads back from disk.
class OwnMemory final : public Keeper {
 public:
  Result<Allocation> create(std::size_t bytes) override { return node_.host->create_local(bytes); }
  Location seal(Allocation made) override { return node_.host->local().seal(std::move(made)); }
  Result<void> adopt(const Location& at) override { return node_.host->adopt(0, at); }
  Result<Pinned> look(const Location& at) override { return node_.host->open_local(at); }
  Result<void> free(const Location& at) override {
    const auto freed = node_.host->free(at);
    return freed ? Result<void>() : Result<void>(freed.error());
  }
  void carry() override {
    node_.host->poll();
    node_.pump();
  }
  bool writer_dies() override { return false; }
  const Host& host() override { return *node_.host; }
  std::uint64_t on_disk() override { return 0; }

 private:
  Node node_;
};

class SharedMemory final : public Keeper {
 public:
  Result<Allocation> create(std::size_t bytes) override { return node_.create(*writer_, bytes); }
  Location seal(Allocation made) override { return writer_->seal(std::move(made)); }
  Result<void> adopt(const Location& at) override {
    return node_.host->adopt(writer_->process(), at);
  }
  Result<Pinned> look(const Location& at) override {
    Opened opened = node_.open(reader_, at);
    if (opened.status == OpenStatus::pinned) return std::move(opened.pinned);
    return Error(Code::object_lost, "open() says " + std::to_string(int(opened.status)));
  }
  Result<void> free(const Location& at) override {
    const auto freed = node_.host->free(at);
    return freed ? Result<void>() : Result<void>(freed.error());
  }
  void carry() override { node_.pump(); }
  bool writer_dies() override {
    node_.kill(writer_->process());
    writer_ = &node_.join();
    return true;
  }
  const Host& host() override { return *node_.host; }
  std::uint64_t on_disk() override { return 0; }

 private:
  Node node_;
  Client* writer_ = &node_.join();
  Client& reader_ = node_.join();
};

class Spilling final : public Keeper {
 public:
  Result<Allocation> create(std::size_t bytes) override { return world_.create(*writer_, bytes); }
  Location seal(Allocation made) override { return writer_->seal(std::move(made)); }
  Result<void> adopt(const Location& at) override {
    const auto adopted = world_.node.host->adopt(writer_->process(), at);
    if (adopted) world_.spiller->adopted(at, world_.now());
    return adopted;
  }
  Result<Pinned> look(const Location& at) override { return world_.look(reader_, at); }
  Result<void> free(const Location& at) override { return world_.spiller->free(at); }
  void carry() override {
    world_.pass();
    for (int i = 0; i < 1000 && on_disk() != 0 && world_.node.host->stats().objects == 0; ++i)
      world_.pass();
  }
  bool writer_dies() override {
    world_.kill(writer_->process());
    writer_ = &world_.node.join();
    return true;
  }
  const Host& host() override { return *world_.node.host; }
  std::uint64_t on_disk() override { return world_.spiller->stats().disk.objects; }

 private:
  SpillingNode world_{{}, SpillingNode::patient(), SpillingNode::tiny()};
  Client* writer_ = &world_.node.join();
  Client& reader_ = world_.node.join();
};

class ObjectContract : public testing::TestWithParam<const char*> {
 protected:
  ObjectContract() {
    const std::string which = GetParam();
    if (which == "own")
      store = std::make_unique<OwnMemory>();
    else if (which == "shared")
      store = std::make_unique<SharedMemory>();
    else
      store = std::make_unique<Spilling>();
  }
  bool spills() const { return std::string(GetParam()) == "spilling"; }
  Result<Location> put(std::string_view text) {
    auto made = store->create(text.size());
    if (!made) return made.error();
    std::memcpy(made->bytes().data(), text.data(), text.size());
    const Location at = store->seal(*std::move(made));
    store->adopt(at).value();
    return at;
  }
  std::string read(const Location& at) {
    auto view = store->look(at);
    return view ? Node::text(*view) : "<" + std::string(name_of(view.error().code())) + ">";
  }
  void expect_all_back() {
    store->carry();
    const HostStats stats = store->host().stats();
    EXPECT_EQ(stats.objects, 0u);
    EXPECT_EQ(stats.object_bytes, 0u);
    EXPECT_EQ(stats.waiting, 0u);
    EXPECT_EQ(store->on_disk(), 0u);
  }
  std::unique_ptr<Keeper> store;
};

TEST_P(ObjectContract, WhatWasSealedIsReadAsItWas) {
  std::vector<std::pair<Location, std::string>> all;
  for (const std::size_t size : {0, 1, 63, 64, 65, 4'095, 30'000, 200'000}) {
    const std::string bytes = text(size, static_cast<unsigned>(size));
    all.emplace_back(put(bytes).value(), bytes);
  }
  for (const auto& [at, bytes] : all) EXPECT_EQ(read(at), bytes) << bytes.size();
  for (const auto& [at, bytes] : all) store->free(at).value();
  expect_all_back();
}

TEST_P(ObjectContract, IsNotReadBeforeItsSeal) {
  Location next = put("before").value();
  store->free(next).value();
  store->carry();
  Allocation unsealed = store->create(6).value();
  for (int life = 0; life < 4; ++life, ++next.generation)
    EXPECT_FALSE(store->look(next).ok()) << "the slot's life " << life << " from the last";
  EXPECT_FALSE(store->adopt(next).ok());
  std::memcpy(unsealed.bytes().data(), "after!", 6);
  const Location at = store->seal(std::move(unsealed));
  store->adopt(at).value();
  EXPECT_EQ(read(at), "after!");
}

TEST_P(ObjectContract, IsHandedOverOnce) {
  const Location at = put("once").value();
  EXPECT_EQ(store->adopt(at).error().code(), Code::invalid_argument);
  store->free(at).value();
  expect_all_back();
}

TEST_P(ObjectContract, IsFreedOnce) {
  const Location at = put("gone").value(), other = put("stays").value();
  store->free(at).value();
  EXPECT_EQ(store->free(at).error().code(), Code::invalid_argument);
  EXPECT_EQ(read(at), "<object_lost>");
  EXPECT_EQ(read(other), "stays");
  Location never = other;
  never.slot += 100;
  EXPECT_EQ(store->free(never).error().code(), Code::invalid_argument);
  store->free(other).value();
  expect_all_back();
}

TEST_P(ObjectContract, AViewKeepsTheBytesWhoeverFreesThem) {
  const std::string bytes = text(20'000, 1);
  const Location at = put(bytes).value();
  Pinned view = store->look(at).value();
  store->free(at).value();
  store->carry();
  EXPECT_EQ(read(at), "<object_lost>") << "no new view";
  std::vector<Location> others;
  for (unsigned i = 0; i < 20; ++i) others.push_back(put(text(20'000, 2 + i)).value());
  EXPECT_EQ(Node::text(view), bytes) << "and nobody has written there";
  view = {};
  for (const Location& other : others) store->free(other).value();
  expect_all_back();
}

TEST_P(ObjectContract, TheLastOfManyViewsEndsIt) {
  const Location at = put("looked at").value();
  Pinned first = store->look(at).value(), second = store->look(at).value();
  EXPECT_EQ(store->host().pins(at), 2u);
  store->free(at).value();
  first = {};
  store->carry();
  EXPECT_EQ(store->host().stats().waiting, 1u);
  EXPECT_EQ(Node::text(second), "looked at");
  second = {};
  expect_all_back();
}

TEST_P(ObjectContract, WhatNeverFitsIsOutOfMemory) {
  const auto made = store->create(store->host().stats().arena + 1);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), Code::out_of_memory);
  const Location at = put("fits").value();
  EXPECT_EQ(read(at), "fits");
}

TEST_P(ObjectContract, AFullOneLosesNothingAndTakesAgainWhatItTookBefore) {
  const std::size_t size = store->host().stats().arena / 16;
  for (int round = 0; round < 2; ++round) {
    std::vector<Location> all;
    Result<Location> last = put(text(size, 0));
    for (unsigned i = 1; last.ok() && i < 40; ++i) {
      all.push_back(*last);
      last = put(text(size, i));
    }
    if (spills()) {
      EXPECT_TRUE(last.ok()) << "more than twice what its memory takes";
      all.push_back(*last);
    } else {
      ASSERT_FALSE(last.ok());
      EXPECT_EQ(last.error().code(), Code::out_of_memory);
      EXPECT_GE(all.size(), 14u);
    }
    for (unsigned i = 0; i < all.size(); ++i) EXPECT_EQ(read(all[i]), text(size, i)) << i;
    for (const Location& at : all) store->free(at).value();
    expect_all_back();
  }
}

TEST_P(ObjectContract, OutlivesItsWriter) {
  const std::string bytes = text(50'000, 3);
  const Location at = put(bytes).value(), looked_at = put("looked at").value();
  Pinned view = store->look(looked_at).value();
  Allocation unsealed = store->create(1'000).value();
  unsealed = {};
  if (!store->writer_dies()) GTEST_SKIP() << "the agent is its own writer";
  EXPECT_EQ(read(at), bytes);
  EXPECT_EQ(Node::text(view), "looked at");
  view = {};
  store->free(at).value();
  store->free(looked_at).value();
  EXPECT_EQ(read(at), "<object_lost>");
  const Location next = put("of the next").value();
  EXPECT_EQ(read(next), "of the next");
  store->free(next).value();
  expect_all_back();
}

TEST_P(ObjectContract, IsAsAMapOfStringsInAnyOrderOfEvents) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::pair<Location, std::string>> all, views_of;
    std::vector<Pinned> views;
    unsigned next = 0;
    for (int step = 0; step < 400; ++step) {
      const auto dice = random.below(10);
      if (dice < 4 && all.size() < 100) {
        const std::string bytes = text(random.below(12'000), ++next);
        all.emplace_back(put(bytes).value(), bytes);
      } else if (dice < 6 && !all.empty()) {
        const auto& [at, bytes] = all[random.below(all.size())];
        EXPECT_EQ(read(at), bytes);
      } else if (dice < 7 && !all.empty() && views.size() < 4) {
        views_of.push_back(all[random.below(all.size())]);
        views.push_back(store->look(views_of.back().first).value());
      } else if (dice < 8 && !views.empty()) {
        EXPECT_EQ(Node::text(views.front()), views_of.front().second);
        views.erase(views.begin());
        views_of.erase(views_of.begin());
      } else if (!all.empty()) {
        const auto which = static_cast<std::ptrdiff_t>(random.below(all.size()));
        store->free(all[static_cast<std::size_t>(which)].first).value();
        all.erase(all.begin() + which);
      }
      if (random.chance(0.2)) store->carry();
    }
    for (std::size_t i = 0; i < views.size(); ++i)
      EXPECT_EQ(Node::text(views[i]), views_of[i].second);
    views.clear();
    for (const auto& [at, bytes] : all) {
      EXPECT_EQ(read(at), bytes);
      store->free(at).value();
    }
    expect_all_back();
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, ObjectContract, testing::Values("own", "shared", "spilling"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace troupe::objectstore

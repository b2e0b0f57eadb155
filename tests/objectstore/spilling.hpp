// A node that spills to disk: the host, its spiller and clients in one process. Plain calls carry
// the messages that the runtime would send.
#pragma once

#include "node.hpp"

#include "troupe/objectstore/spiller.hpp"

#include <poll.h>
#include <stdlib.h>
#include <filesystem>
#include <optional>

namespace troupe::objectstore {

using namespace std::chrono_literals;

/// A node whose processes get the spiller's notices.
class SpillingNode final : public Spiller::Out {
 public:
  explicit SpillingNode(SpillOptions disk = {}, SpillerOptions options = patient(),
                        const HostOptions& host = small())
      : node(host) {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-spiller-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    disk.folders = {folder};
    spiller = std::make_unique<Spiller>(*node.host, SpillFiles::open(disk).value(), *this, options);
  }
  ~SpillingNode() override {
    spiller.reset();
    std::filesystem::remove_all(folder);
  }
  static HostOptions small() {
    HostOptions options = Node::small();
    options.arena = 4_MiB;
    options.extent = 256_KiB;
    return options;
  }
  static HostOptions tiny() {
    HostOptions options = small();
    options.arena = 512_KiB;
    options.extent = 64_KiB;
    return options;
  }
  static SpillerOptions patient() {
    SpillerOptions options;
    options.patience = 20s;
    options.grace = 0ms;
    options.retry = 1ms;
    return options;
  }
  Time now() const { return steady_now() + skipped; }

  // Runs one pass of the agent's loop.
  void pass() {
    pollfd set{spiller->fd(), POLLIN, 0};
    poll(&set, 1, 1);
    spiller->poll(now());
    node.pump();
    for (const auto& [ask, error] : std::exchange(later, {})) answers.insert_or_assign(ask, error);
    if (!std::exchange(pressure, false)) return;
    for (const auto& [index, client] : node.clients) {
      for (const Location& at : std::exchange(owned[index], {})) adopt(index, at);
      for (const ExtentId extent : client->trim(Bytes{0}))
        node.host->release_extent(index, extent).value();
    }
    node.pump();
  }
  // Waits for the answer to an ask; bounded. The clock skips ahead after `skip_after` passes.
  Result<void> answer(std::uint64_t ask) {
    const Time until = steady_now() + 30s;
    for (int passes = 1; answers.count(ask) == 0 && steady_now() < until; ++passes) {
      if (passes == skip_after) skipped += 40s;
      pass();
    }
    if (answers.count(ask) == 0) return Error(Code::timed_out, "no answer");
    const auto error = answers.at(ask);
    answers.erase(ask);
    return error ? Result<void>(*error) : Result<void>();
  }
  // Allocates memory as the engine of a process does.
  Result<Allocation> create(Client& client, std::size_t bytes) {
    for (int tries = 0; tries < 64; ++tries) {
      auto created = client.create(bytes);
      if (!created) return created.error();
      if (auto* made = std::get_if<Allocation>(&*created)) return std::move(*made);
      const std::uint64_t ask = ++last_ask;
      spiller->need(ask, client.process(), std::get<ExtentRequest>(*created).bytes, now());
      if (auto got = answer(ask); !got) return got.error();
      if (const auto grant = grants.find(ask); grant != grants.end()) {
        const ExtentId id = grant->second.id;
        client.add_extent(std::move(grant->second)).value();
        node.host->confirm_extent(client.process(), id).value();
        grants.erase(grant);
      }
    }
    return Error(Code::overloaded, "memory was given and was not there 64 times");
  }
  Result<Location> put(Client& client, std::string_view text) {
    auto made = create(client, text.size());
    if (!made) return made.error();
    std::memcpy(made->bytes().data(), text.data(), text.size());
    return client.seal(*std::move(made));
  }
  void adopt(std::uint32_t process, const Location& at) {
    node.host->adopt(process, at).value();
    spiller->adopted(at, now());
  }
  Result<Location> put_shared(Client& client, std::string_view text) {
    auto at = put(client, text);
    if (at) adopt(client.process(), *at);
    return at;
  }
  // Opens the object of this name, wherever it is.
  Result<Pinned> look(Client& client, const Location& name) {
    Location at = name;
    for (int tries = 0; tries < 8; ++tries) {
      Opened opened = node.open(client, at);
      if (opened.status == OpenStatus::pinned) return std::move(opened.pinned);
      const std::uint64_t ask = ++last_ask;
      spiller->find(ask, name, now());
      if (auto got = answer(ask); !got) return got.error();
      at = places.at(ask);
    }
    return Error(Code::unavailable, "it moved eight times");
  }
  std::string read(Client& client, const Location& name) {
    auto view = look(client, name);
    return view ? Node::text(*view) : "<" + std::string(name_of(view.error().code())) + ">";
  }
  void kill(std::uint32_t process) {
    spiller->forget(process);
    owned.erase(process);
    node.kill(process);
  }
  void expect_all_back() {
    for (int i = 0; i < 100 && spiller->stats().disk.objects != 0; ++i) pass();
    pass();
    EXPECT_EQ(node.host->stats().objects, 0u);
    EXPECT_EQ(node.host->stats().waiting, 0u);
    EXPECT_EQ(spiller->stats().disk.bytes, 0u);
    EXPECT_EQ(spiller->stats().waiting, 0u);
  }

  Node node;
  std::string folder;
  std::unique_ptr<Spiller> spiller;
  std::map<std::uint32_t, std::vector<Location>> owned;  // objects that only their process knows
  Duration skipped{0};
  int skip_after = 0;  // zero: never

 private:
  void granted(std::uint64_t ask, ExtentGrant grant) override {
    grants[ask] = std::move(grant);
    answers[ask] = std::nullopt;
  }
  void try_again(std::uint64_t ask) override { later[ask] = std::nullopt; }
  void located(std::uint64_t ask, const Location& at) override {
    places[ask] = at;
    answers[ask] = std::nullopt;
  }
  void refused(std::uint64_t ask, const Error& error) override { answers[ask] = error; }
  void memory_pressure() override { pressure = true; }

  std::uint64_t last_ask = 0;
  std::map<std::uint64_t, std::optional<Error>> answers, later;
  std::map<std::uint64_t, ExtentGrant> grants;
  std::map<std::uint64_t, Location> places;
  bool pressure = false;
};

inline std::string text(std::size_t size, unsigned seed) {
  std::string s(size, '\0');
  std::uint32_t x = seed * 2654435761u + 12345;
  for (char& c : s) c = static_cast<char>((x = x * 1664525u + 1013904223u) >> 24);
  return s;
}

}  // namespace troupe::objectstore

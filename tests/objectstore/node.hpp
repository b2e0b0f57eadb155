// A node in one process: a host and clients. Plain calls carry the messages that the runtime
// would send.
#pragma once

#include "troupe/objectstore/host.hpp"

#include <gtest/gtest.h>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::objectstore {

inline constexpr Layout kSmallLayout{8, 256, 64};

class Node {
 public:
  explicit Node(const HostOptions& options = small()) : host(Host::create(options).value()) {}

  static HostOptions small() {
    HostOptions options;
    options.arena = Bytes{16 << 20};
    options.extent = Bytes{1 << 20};
    options.layout = kSmallLayout;
    return options;
  }

  Client& join() {
    Membership membership = host->register_process().value();
    const std::uint32_t index = membership.process;
    clients[index] = Client::attach(std::move(membership), [this](auto process, auto slot) {
                       std::lock_guard lock(mutex_);
                       unpins_.emplace_back(process, slot);
                     }).value();
    host->confirm_process(index).value();
    return *clients[index];
  }

  // Ends a client as kill -9 does: it is gone, and its pins stay set.
  void kill(std::uint32_t process) {
    clients.erase(process);
    host->process_died(process);
    pump();
  }

  // Carries all messages that are under way.
  void pump() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> unpins;
    {
      std::lock_guard lock(mutex_);
      unpins.swap(unpins_);
    }
    for (const auto& [process, slot] : unpins) host->unpinned(process, slot);
    for (const Notice& notice : host->take_notices()) {
      notices.push_back(notice);
      for (const auto& [process, client] : clients) {
        if (notice.kind == Notice::Kind::forget_extent) client->forget_extent(notice.extent);
        if (notice.kind == Notice::Kind::forget_segment) client->forget_segment(notice.process);
        if (notice.kind == Notice::Kind::recycle && notice.process == process)
          client->recycle(notice.slot, notice.generation).value();
      }
    }
  }

  Result<Allocation> create(Client& client, std::uint64_t bytes) {
    auto created = client.create(bytes);
    if (!created) return created.error();
    if (auto* request = std::get_if<ExtentRequest>(&*created)) {
      auto grant = host->grant(client.process(), request->bytes);
      if (!grant) return grant.error();
      const ExtentId id = grant->id;
      client.add_extent(*std::move(grant)).value();
      host->confirm_extent(client.process(), id).value();
      created = client.create(bytes);
      if (!created) return created.error();
    }
    return std::get<Allocation>(*std::move(created));
  }

  Location put(Client& client, std::string_view text) {
    Allocation made = create(client, text.size()).value();
    std::memcpy(made.bytes().data(), text.data(), text.size());
    return client.seal(std::move(made));
  }
  Location put_shared(Client& client, std::string_view text) {
    const Location at = put(client, text);
    host->adopt(client.process(), at).value();
    return at;
  }

  Opened open(Client& client, const Location& at) {
    for (int i = 0; i < 3; ++i) {
      Opened opened = client.open(at);
      if (opened.status == OpenStatus::needs_segment) {
        auto segment = host->segment_for_reader(at.process);
        if (!segment || segment->incarnation < at.incarnation()) return opened;
        client.add_segment(*std::move(segment)).value();
      } else if (opened.status == OpenStatus::needs_extent) {
        auto extent = host->extent_for_reader(at.extent);
        if (!extent) return opened;
        client.add_reader_extent(*std::move(extent)).value();
      } else {
        return opened;
      }
    }
    return {};
  }
  std::string read(Client& client, const Location& at) {
    const Opened opened = open(client, at);
    if (opened.status != OpenStatus::pinned) return "<none>";
    return text(opened.pinned);
  }
  static std::string text(const Pinned& view) {
    return {reinterpret_cast<const char*>(view.bytes().data()), view.bytes().size()};
  }

  std::unique_ptr<Host> host;
  std::map<std::uint32_t, std::unique_ptr<Client>> clients;
  std::vector<Notice> notices;

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unpins_;
};

}  // namespace troupe::objectstore

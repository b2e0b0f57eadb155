/// Control as a process: one event loop around Service and the network, and one thread for the
/// disk.
///
///     auto server = Server::open(std::move(options)).value();     // recovers; then it listens
///     announce(server->door());
///     Result<void> end = server->run(launcher_fd);                // until that closes
///
/// All messages of one pass for a node travel as one Link message (wire/batch.hpp). Messages that a
/// Link does not take yet wait here, up to max_backlog. A node is dropped when more than that waits
/// for it, or when it sends unreadable bytes. Control then hears it no more, and declares it dead
/// like a silent node.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/service.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::control {

struct ServerOptions {
  ClusterId cluster;
  NodeId node;  ///< control's own id as a peer
  net::CurveKeys keys;
  std::string listen = "tcp://127.0.0.1:*";
  /// The store's folder or plain file (file_store.hpp). Empty, or a file below /proc that cannot be
  /// opened (which is logged): a store in memory that ends with the server.
  std::string data_folder;
  /// Nodes that may connect, besides those in the store. Their doors are not used.
  std::vector<net::PeerInfo> admitted;
  /// Public halves of join tokens. Each admits one node until it expires.
  std::vector<net::PublicKey> join_keys;
  Duration join_keys_last = net::kJoinTokenLife;
  std::string build_id;
  net::LinkOptions link;
  /// How long a broken connection may heal by itself before it counts as closed.
  Duration reconnect_grace = std::chrono::seconds(1);
  ServiceOptions service;

  std::size_t batch = 256 << 10;       ///< bytes of one Link message, unless one frame is larger
  std::size_t max_backlog = 16 << 20;  ///< bytes that wait for one node
  Duration probe_timeout = std::chrono::seconds(1);
};

struct ServerStats {
  std::uint64_t messages_received = 0, messages_sent = 0;
  std::uint64_t bad_frames = 0, dropped_nodes = 0, refused_strangers = 0;
  std::uint64_t too_large = 0;        ///< messages that fit no Link message and were not sent
  std::uint64_t of_later_builds = 0;  ///< messages of a kind that this build does not know
  std::uint64_t commits = 0;
};

class Server {
 public:
  /// Listens, opens the store and recovers. Blocks on the disk. Errors: Unavailable (the address is
  /// busy; the folder is locked by another control, which is named), InvalidArgument (the folder is
  /// damaged or not a store), NoSpace.
  static Result<std::unique_ptr<Server>> open(ServerOptions options);
  /// Ends the disk's thread, after a commit that is under way.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The address with its real port.
  const std::string& door() const noexcept;

  /// Serves until the launcher closes its end of `until`. At the launcher's first byte all nodes
  /// are told that the cluster ends. Errors: that of a failed commit; the server then serves
  /// nothing more.
  Result<void> run(int until);

  /// Accepts joins with this token (its public half) from now on. Call it on the thread of run(),
  /// while run() does not run.
  void admit_join(const net::PublicKey& one_time);
  const Service& service() const noexcept;
  ServerStats stats() const noexcept;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Plays the role of control: reads ControlConfig from the launcher's socket, answers Ready, and
/// serves until the launcher closes the socket. Never returns.
[[noreturn]] void run_control(Fd launcher, const std::string& text);

}  // namespace troupe::control

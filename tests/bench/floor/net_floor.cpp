#include "net_floor.hpp"

#include "ring_floor.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <netinet/in.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace troupe::bench {
namespace {

constexpr int kRuns = 5;
constexpr int kBound_ms = 20'000;  // of every wait; reaching it is a failure

double seconds_since(Time start) {
  return std::chrono::duration<double>(steady_now() - start).count();
}
void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("a floor cannot be measured: ") + what);
}

// --- ZeroMQ ---

struct Keys {
  char open[41] = {}, secret[41] = {};
  Keys() { expect(zmq_curve_keypair(open, secret) == 0, "this libzmq has no CURVE"); }
};

/// A DEALER socket with its own context and I/O thread.
class Dealer {
 public:
  Dealer() : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    set(ZMQ_LINGER, 0);
    set(ZMQ_SNDHWM, 0);
    set(ZMQ_RCVHWM, 0);
    set(ZMQ_RCVTIMEO, kBound_ms);
  }
  ~Dealer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Dealer(const Dealer&) = delete;
  Dealer& operator=(const Dealer&) = delete;

  /// Binds to a free port and returns the address.
  std::string bind(const Keys& mine) {
    set(ZMQ_CURVE_SERVER, 1);
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, mine.secret, 41);
    expect(zmq_bind(socket_, "tcp://127.0.0.1:*") == 0, "no port is free");
    char address[64] = {};
    std::size_t size = sizeof address;
    zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address, &size);
    return address;
  }
  void connect(const std::string& address, const Keys& mine, const Keys& server) {
    zmq_setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, mine.open, 41);
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, mine.secret, 41);
    zmq_setsockopt(socket_, ZMQ_CURVE_SERVERKEY, server.open, 41);
    expect(zmq_connect(socket_, address.c_str()) == 0, "no connection");
  }
  void send(const void* bytes, std::size_t size) {
    expect(zmq_send(socket_, bytes, size, 0) >= 0, "a message is not sent");
  }
  void receive(void* bytes, std::size_t size) {
    expect(zmq_recv(socket_, bytes, size, 0) >= 0, "a message does not come");
  }

 private:
  void set(int option, int value) { zmq_setsockopt(socket_, option, &value, sizeof value); }
  void* context_;
  void* socket_;
};

struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    expect(::pipe(ends) == 0, "no pipe");
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

/// Starts the other side, which binds, sends its address through a pipe, and then runs `serve`.
template <class Serve>
Sample with_dealers(Placement placement, Serve&& serve,
                    const std::function<double(Dealer&)>& measure) {
  const Keys server, client;
  const Pipe pipe;
  const Other other(cpu_of(placement, 1), [&] {
    Dealer dealer;
    const std::string address = dealer.bind(server);
    expect(write(pipe.write.get(), address.c_str(), address.size()) > 0, "no word from the fork");
    serve(dealer);
  });
  const Pinned here(cpu_of(placement, 0));
  char address[64] = {};
  expect(read(pipe.read.get(), address, sizeof address - 1) > 0, "no word from the fork");
  Dealer dealer;
  dealer.connect(address, client, server);
  return median_of(kRuns, [&] { return measure(dealer); });
}

// --- TCP ---

/// AES-256-GCM with a counter as nonce; one call per chunk.
class Cipher {
 public:
  explicit Cipher(bool seals) : context_(EVP_CIPHER_CTX_new()) {
    const unsigned char key[32] = {1};
    EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr, key, nullptr, seals ? 1 : 0);
  }
  ~Cipher() { EVP_CIPHER_CTX_free(context_); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  void seal(const unsigned char* in, unsigned char* out, std::size_t size, unsigned char* tag) {
    next();
    int n = 0;
    EVP_CipherUpdate(context_, out, &n, in, static_cast<int>(size));
    EVP_CipherFinal_ex(context_, out + n, &n);
    EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_GET_TAG, 16, tag);
  }
  void open(const unsigned char* in, unsigned char* out, std::size_t size, unsigned char* tag) {
    next();
    int n = 0;
    EVP_CipherUpdate(context_, out, &n, in, static_cast<int>(size));
    EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_SET_TAG, 16, tag);
    expect(EVP_CipherFinal_ex(context_, out + n, &n) == 1, "a tag is wrong");
  }

 private:
  void next() {
    unsigned char nonce[12] = {};
    ++count_;
    std::memcpy(nonce, &count_, sizeof count_);
    EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce, -1);
  }
  EVP_CIPHER_CTX* context_;
  std::uint64_t count_ = 0;
};

void write_all(int fd, const unsigned char* at, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, at, size, MSG_NOSIGNAL);
    expect(n > 0, "the connection broke");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}
void read_all(int fd, unsigned char* at, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, at, size, 0);
    expect(n > 0, "the connection broke");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

constexpr std::size_t kChunk = std::size_t{256} << 10;
constexpr std::size_t kTag = 16;

void send_chunks(int fd, const unsigned char* from, Cipher* cipher, unsigned char* sealed) {
  for (std::size_t at = 0; at < kCrossing; at += kChunk) {
    if (cipher == nullptr) {
      write_all(fd, from + at, kChunk);
      continue;
    }
    cipher->seal(from + at, sealed, kChunk, sealed + kChunk);
    write_all(fd, sealed, kChunk + kTag);
  }
}
void receive_chunks(int fd, unsigned char* into, Cipher* cipher, unsigned char* sealed) {
  for (std::size_t at = 0; at < kCrossing; at += kChunk) {
    if (cipher == nullptr) {
      read_all(fd, into + at, kChunk);
      continue;
    }
    read_all(fd, sealed, kChunk + kTag);
    cipher->open(sealed, into + at, kChunk, sealed + kChunk);
  }
}

Fd listen_on_loopback(sockaddr_in& address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  expect(bind(fd.get(), where, size) == 0 && listen(fd.get(), 1) == 0 &&
             getsockname(fd.get(), where, &size) == 0,
         "no port is free");
  return fd;
}

}  // namespace

Sample zmq_round_trip(Placement placement) {
  constexpr int kRounds = 2000;
  return with_dealers(
      placement,
      [](Dealer& dealer) {
        char message[kMessageBytes];
        for (;;) {
          dealer.receive(message, sizeof message);
          dealer.send(message, sizeof message);
        }
      },
      [](Dealer& dealer) {
        char message[kMessageBytes] = {};
        const Time start = steady_now();
        for (int i = 0; i < kRounds; ++i) {
          dealer.send(message, sizeof message);
          dealer.receive(message, sizeof message);
        }
        return seconds_since(start) / kRounds * 1e6;
      });
}

Sample zmq_one_way(Placement placement) {
  constexpr int kMessages = 100'000;
  return with_dealers(
      placement,
      [](Dealer& dealer) {
        char message[kMessageBytes];
        for (;;) {
          for (int i = 0; i < kMessages; ++i) dealer.receive(message, sizeof message);
          dealer.send(message, 1);
        }
      },
      [](Dealer& dealer) {
        char message[kMessageBytes] = {};
        const Time start = steady_now();
        for (int i = 0; i < kMessages; ++i) dealer.send(message, sizeof message);
        dealer.receive(message, 1);
        return kMessages / seconds_since(start);
      });
}

Sample tcp_rate(Placement placement, bool sealed) {
  sockaddr_in address;
  const Fd door = listen_on_loopback(address);
  const std::unique_ptr<unsigned char[]> memory(new unsigned char[kCrossing]);
  std::memset(memory.get(), 1, kCrossing);
  std::vector<unsigned char> buffer(kChunk + kTag);
  const Fd here_end(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // outlives the other side
  const Other other(cpu_of(placement, 1), [&] {
    const Fd peer(accept(door.get(), nullptr, nullptr));
    Cipher cipher(false);
    for (;;) {
      receive_chunks(peer.get(), memory.get(), sealed ? &cipher : nullptr, buffer.data());
      write_all(peer.get(), memory.get(), 1);
    }
  });
  const Pinned here(cpu_of(placement, 0));
  expect(connect(here_end.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
         "no connection");
  Cipher cipher(true);
  return median_of(kRuns, [&] {
    const Time start = steady_now();
    send_chunks(here_end.get(), memory.get(), sealed ? &cipher : nullptr, buffer.data());
    unsigned char word = 0;
    read_all(here_end.get(), &word, 1);
    return static_cast<double>(kCrossing) / seconds_since(start) / 1e9;
  });
}

std::vector<Row> net_rows() {
  std::vector<Row> rows;
  for (const Placement p : {Placement::one_cpu, Placement::two_cpus}) {
    if (!possible(p)) continue;
    rows.push_back(floor_row("zmq_round_trip", p, zmq_round_trip(p), "us"));
    rows.push_back(floor_row("zmq_one_way", p, zmq_one_way(p), "messages/s"));
    rows.push_back(floor_row("tcp_plain", p, tcp_rate(p, false), "GB/s"));
    rows.push_back(floor_row("tcp_sealed", p, tcp_rate(p, true), "GB/s"));
  }
  return rows;
}

}  // namespace troupe::bench

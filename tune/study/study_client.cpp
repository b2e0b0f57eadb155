#include "troupe/tune/study/study_client.hpp"

#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/tune/study/internal/files.hpp"
#include "troupe/tune/study/internal/study_questions.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace troupe::tune {
namespace {

constexpr std::size_t kMostAnswer = 64 * 1024 * 1024;

timeval timeval_of(Duration time) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return {.tv_sec = micros / 1'000'000, .tv_usec = micros % 1'000'000};
}

std::string seconds_text(Duration time) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  if (millis % 1000 != 0) return std::to_string(millis) + " ms";
  return std::to_string(millis / 1000) + " s";
}

}  // namespace

Error StudyClient::gone() const {
  return Error(Code::unavailable,
               "tune: the process of " + folder_ + " (pid " +
                   std::to_string(owner_ ? owner_->pid : 0) +
                   ") has ended or cut the connection: see with `troupe tune show` what came of it",
               Outcome::unknown);
}

Error StudyClient::silent() const {
  return Error(Code::timed_out,
               "tune: the process of " + folder_ + " (pid " +
                   std::to_string(owner_ ? owner_->pid : 0) + ") has not answered within " +
                   seconds_text(patience_) +
                   ": it may be stopped (`kill -CONT` lets it go on) or wait for its disk",
               Outcome::unknown);
}

Result<StudyClient> StudyClient::connect(const std::string& folder, Duration patience,
                                         const Error& refusal) {
  const Fd handle = make_fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!handle) return refusal;
  const std::string name = internal::socket_address(folder, handle.get());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return refusal;
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  StudyClient client(folder);
  client.patience_ = patience;
  client.owner_ = StudyFolder::owner_of(folder);
  client.socket_ = make_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!client.socket_) return internal::failed("make a socket for", folder, errno);
  // connect() waits for room in the owner's queue, as long as it may for room to send.
  const timeval most = timeval_of(patience);
  (void)::setsockopt(client.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  if (::connect(client.socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof address) != 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return client.silent();
    if (errno != EACCES && errno != EPERM) return refusal;
    return Error(Code::unavailable,
                 refusal.message() +
                     "; while it runs, only its own user may ask it (socket: permission denied)");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(client.socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
      peer.pid > 0) {
    if (!client.owner_) client.owner_ = StudyOwner{};
    client.owner_->pid = peer.pid;
  }
  return client;
}

Result<StudyClient> StudyClient::open(const std::string& folder, Duration patience) {
  auto reader = StudyReader::open(folder);
  if (!reader) {
    if (reader.error().code() != Code::unavailable) return reader.error();
    return connect(folder, patience, reader.error());
  }
  StudyClient client(folder);
  client.reader_ = std::move(*reader);
  return client;
}

Result<Json> StudyClient::call(const std::string& line) {
  if (!socket_) return gone();
  Fd socket = std::move(socket_);  // back only after a whole answer
  const Time deadline = deadline_after(steady_now(), patience_);
  const std::string out = line + "\n";
  LineCutter lines(kMostAnswer);
  std::vector<char> buffer(64 * 1024);
  for (std::size_t sent = 0;;) {
    const bool sends = sent < out.size();
    pollfd entry{socket.get(), static_cast<short>(sends ? POLLOUT : POLLIN), 0};
    const int ready = wait_for({&entry, 1}, time_left(deadline, steady_now()));
    if (ready == 0) return silent();
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return gone();
    const ssize_t n = sends ? ::send(socket.get(), out.data() + sent, out.size() - sent,
                                     MSG_DONTWAIT | MSG_NOSIGNAL)
                            : ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
    if (n < 0 && sends) {  // an owner that refuses says why before it cuts the connection
      sent = out.size();
      continue;
    }
    if (n <= 0) return gone();
    if (sends) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    if (!lines.add({buffer.data(), static_cast<std::size_t>(n)}))
      return Error(Code::invalid_argument,
                   "tune: an answer of " + folder_ + " is longer than 64 MiB");
    if (const auto answer = lines.next()) {
      socket_ = std::move(socket);
      return read_answer(*answer);
    }
  }
}

Result<Json> StudyClient::ask(const StudyQuestion& question) {
  if (!reader_) return call(line_of(question));
  return read_answer(internal::answer_to(question, reader_->rows(), nullptr));
}

Result<Json> StudyClient::command(const StudyCommand& command) {
  if (!reader_) return call(line_of(command));
  return Error(Code::unavailable,
               "tune: no process runs the study " + folder_ +
                   ", so that nothing can be changed: start its program, which continues it");
}

}  // namespace troupe::tune

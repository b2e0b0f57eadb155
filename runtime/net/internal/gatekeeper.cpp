#include "troupe/runtime/net/internal/gatekeeper.hpp"

namespace troupe::net::internal {
namespace {

constexpr std::size_t kAuditKept = 64;

/// Fields of a ZAP 1.0 request, in order.
enum : std::size_t { version, request_id, domain, address, identity, mechanism, client_key, parts };

}  // namespace

std::string peer_domain(const PublicKey& key) {
  return "peer:" + key.str();
}

Gatekeeper::Gatekeeper(const Context& context) : socket_(context, ZMQ_REP) {
  bound_ = socket_.bind("inproc://zeromq.zap.01");
}

const Gatekeeper::Admission* Gatekeeper::find(const PublicKey& key, Time now) const {
  const auto at = admitted_.find(key);
  return at != admitted_.end() && now < at->second.expires ? &at->second : nullptr;
}

bool Gatekeeper::judge(std::vector<Part>& request, Time now, PublicKey& key,
                       std::string& why) const {
  if (request.size() != parts || request[version].text() != "1.0") {
    why = "a malformed ZAP request";
    return false;
  }
  if (request[mechanism].text() != "CURVE" || request[client_key].bytes().size() != 32) {
    why = "no CURVE key";
    return false;
  }
  std::memcpy(key.bytes.data(), request[client_key].bytes().data(), 32);
  const Admission* admission = find(key, now);
  if (admission == nullptr) {
    why = "its key is not admitted";
    return false;
  }
  const std::string_view asked = request[domain].text();
  if (asked == kDoorDomain) return true;
  if (asked == peer_domain(key) && admission->role != Role::join) return true;
  why = "its key is admitted, but not to this socket";
  return false;
}

void Gatekeeper::answer(Time now) {
  while (socket_.readable()) {
    std::vector<Part> request = socket_.receive_all();
    if (request.empty()) return;
    PublicKey key;
    std::string why;
    const bool admitted = judge(request, now, key, why);
    if (!admitted) {
      ++refused_;
      if (audit_.size() == kAuditKept) audit_.pop_front();
      audit_.push_back(
          {request.size() > address ? std::string(request[address].text()) : "?", why});
    }
    const std::string_view id = request.size() > request_id ? request[request_id].text() : "";
    const std::string user = admitted ? key.str() : "";
    socket_.send("1.0", 3, true);
    socket_.send(id.data(), id.size(), true);
    socket_.send(admitted ? "200" : "400", 3, true);
    socket_.send("", 0, true);
    socket_.send(user.data(), user.size(), true);
    socket_.send("", 0);
  }
}

}  // namespace troupe::net::internal

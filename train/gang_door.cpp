#include "troupe/train/internal/gang_door.hpp"

#include "troupe/actors/collective/tcp/door.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

class TcpDoor final : public GangDoor {
 public:
  TcpDoor(const std::string& host, int rank, Duration timeout)
      : door_(std::make_shared<collective::Door>(
            collective::DoorOptions{.host = host, .rank = rank, .timeout = timeout})) {}
  const std::string& address() const override { return door_->address(); }
  std::shared_ptr<collective::LinkSource> links(std::span<const std::byte> key,
                                                const std::vector<std::string>& doors) override {
    Secret<kGangKeyBytes> secret;
    if (key.size() != secret.size())
      throw Unavailable(Code::unavailable, "train: the key of the gang has another size");
    std::copy(key.begin(), key.end(), secret.data());
    door_->meet(doors, std::move(secret));
    return door_;
  }

 private:
  std::shared_ptr<collective::Door> door_;
};

}  // namespace

std::unique_ptr<GangDoor> open_gang_door(const std::string& host, int rank, Duration timeout) {
  return std::make_unique<TcpDoor>(host, rank, timeout);
}

}  // namespace troupe::train::internal

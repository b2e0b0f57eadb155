/// NcclCommunicator: one rank's end of a group whose operations a device carries out.
#pragma once

#include "troupe/actors/collective/nccl/internal/comms.hpp"
#include "troupe/kernels/device/device.hpp"

namespace troupe::collective::nccl {

/// The parts that a rank's group and its splits share.
struct Place {
  kernels::Device device;
  std::shared_ptr<Comms> comms;
  bool synchronize = false;  ///< TROUPE_NCCL_SYNCHRONIZE: nothing runs beside an operation
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Place place, std::unique_ptr<Control> control, Entry& entry);
  ~NcclCommunicator() override;
  void abort(std::string_view reason) noexcept override;
  bool is_over() const noexcept override { return control_->is_over(); }
  bool was_given_up() const noexcept override { return control_->was_given_up(); }
  std::vector<RankProgress> progress() const override { return control_->progress(); }

  Control& control() noexcept { return *control_; }
  /// Counts an operation that has ended without an error, and records its end.
  void has_done(const Comms::Under& under) noexcept;

 protected:
  internal::CallLog* call_log() noexcept override { return control_->call_log(); }
  void run(Request& request) override;
  void launch(const std::shared_ptr<Flight>& flight) noexcept override;
  std::unique_ptr<Communicator> join_split(const Request& done, Progress progress) override;

 private:
  bool is_on_device(const Request& request) const;
  /// Begins an operation. Returns true if the device carries it out, false if it is done.
  bool begin(const std::shared_ptr<Flight>& flight);
  bool enqueue(const std::shared_ptr<Flight>& flight);
  void hold_back(const Request& request);
  Result issue(const Request& request);
  Result issue_transfers(const Request& request);

  Place place_;
  std::unique_ptr<Control> control_;
  Entry* entry_;
  Entry* split_ = nullptr;  // made by split(), for join_split()
  std::unique_ptr<kernels::Queue> queue_;
};

/// Does join_nccl_group() with a library of the caller, which must outlive the group.
std::unique_ptr<Communicator> join(std::unique_ptr<Communicator> host,
                                   const kernels::Device& device, const Library& library,
                                   Duration abort_within);

}  // namespace troupe::collective::nccl

#include "troupe/runtime/control/write_gate.hpp"

#include <string>

namespace troupe::control {

std::shared_ptr<const ErrorInfo> WriteGate::refusal() const {
  if (!has_space_)
    return Error(Code::no_space, "control is read-only: the disk of its data folder is nearly full")
        .shared_info();
  if (waiting_ > most_)
    return Error(Code::overloaded,
                 "control's disk is behind: " + std::to_string(waiting_ >> 20) + " MiB wait for it")
        .shared_info();
  return nullptr;
}

}  // namespace troupe::control

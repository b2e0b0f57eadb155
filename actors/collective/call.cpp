#include "troupe/actors/collective/call.hpp"

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/internal/call_log.hpp"

#include <utility>

namespace troupe::collective {
namespace {

thread_local Call* innermost = nullptr;

}  // namespace

Call::Call(Communicator* whole, const char* name, Made made) noexcept
    : log_(whole == nullptr ? nullptr : whole->call_log()),
      name_(name),
      outer_(std::exchange(innermost, this)) {
  if (log_ != nullptr && !log_->is_whole()) log_ = nullptr;
  if (log_ == nullptr) return;
  Call* outermost = this;
  for (Call* each = outer_; each != nullptr; each = each->outer_)
    if (each->is_in(*log_)) outermost = each;
  stamp_ = outermost->stamp_;
  if (made == Made::by_some_rank || stamp_ != 0) return;
  stamp_ = log_->begin(outermost->name_);
  for (Call* each = outer_; each != nullptr; each = each->outer_)
    if (each->is_in(*log_)) each->stamp_ = stamp_;
}

Call::~Call() {
  innermost = outer_;
}

bool Call::is_in(const internal::CallLog& log) const noexcept {
  return log_ != nullptr && log_->is_same(log);
}

std::uint64_t Call::stamp_in(const internal::CallLog* log) noexcept {
  if (log == nullptr) return 0;
  for (const Call* each = innermost; each != nullptr; each = each->outer_)
    if (each->is_in(*log)) return each->stamp_;
  return 0;
}

}  // namespace troupe::collective

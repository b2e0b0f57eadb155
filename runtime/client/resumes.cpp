#include "troupe/runtime/client/resumes.hpp"

#include <memory>
#include <utility>

namespace troupe::client {

void Resumes::add(const detail::ObjectHandle& object, std::function<void()> fire,
                  bool on_executor) {
  auto* resume = new Resume{this, std::move(fire), object, on_executor};
  all_.insert(resume);
  wait(entry_of(object), resume);
  values_.need(entry_of(object), true);
}

void Resumes::give_up_notices() {
  for (Resume* resume : all_)
    if (!resume->on_executor) std::exchange(resume->fire, [] {})();
}

void Resumes::clear() noexcept {
  for (Resume* resume : std::exchange(all_, {})) delete resume;
}

void Resumes::run(const Resume& resume) {
  if (resume.on_executor)
    work_.resume(resume.fire);
  else
    resume.fire();
}

/// Tries to recover an object whose bytes could not be fetched.
void Resumes::look_again(Entry& entry) {
  Entry& origin = origin_of(entry);
  const std::shared_ptr<const ErrorInfo> why = origin.fetch_error;
  if (!why || why->code != Code::object_lost) return;
  Error error(*why);
  if (recovery_.recover(entry, error))
    values_.need(entry, true);
  else
    origin.fetch_error = error.shared_info();
}

/// Runs the Resume when the entry is ready and its bytes are here, if it has any.
void Resumes::wait(Entry& entry, Resume* resume) {
  Entry* blocker = blocker_of(entry);
  Entry& at = blocker != nullptr ? *blocker : origin_of(entry);
  at.waiters.edit().push_back({[](Calls&, void* who, Entry&) {
                                 std::unique_ptr<Resume> r(static_cast<Resume*>(who));
                                 Entry& wanted = entry_of(r->object);
                                 if (fetch_failed(wanted)) r->all->look_again(wanted);
                                 if (!is_here(wanted) && !fetch_failed(wanted))
                                   return r->all->wait(wanted, r.release());
                                 r->all->all_.erase(r.get());
                                 r->all->run(*r);
                               },
                               resume});
}

}  // namespace troupe::client

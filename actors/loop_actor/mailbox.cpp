#include "troupe/actors/loop_actor/mailbox.hpp"

#include "troupe/actors/loop_actor/internal/actor_system.hpp"

#include <utility>

namespace troupe {
namespace {

using namespace loops;

caf::behavior run_posted() {
  return {[](work_atom, const Work& work) { (*work)(); }};
}

}  // namespace

struct LoopMailbox::Actors {
  caf::actor mailbox = actor_system().spawn(run_posted);
  caf::scoped_actor loop{actor_system()};  ///< the message queue of the loop's thread
  bool closed = false;                     ///< the loop's thread has received close_atom
};

LoopMailbox::LoopMailbox() : actors_(std::make_unique<Actors>()) {}

LoopMailbox::~LoopMailbox() {
  stop();
  const caf::scoped_actor self{actor_system()};
  caf::anon_send_exit(actors_->mailbox, caf::exit_reason::kill);
  self->wait_for(actors_->mailbox);
}

void LoopMailbox::post(std::function<void()> work) {
  caf::anon_send(actors_->mailbox, work_atom::value,
                 std::make_shared<const std::function<void()>>(std::move(work)));
}

void LoopMailbox::run(std::function<void()> loop) {
  thread_ = std::thread(std::move(loop));
}

void LoopMailbox::tell(std::shared_ptr<void> message) {
  caf::anon_send(caf::actor_cast<caf::actor>(actors_->loop), message_atom::value,
                 Message(std::move(message)));
}

std::shared_ptr<void> LoopMailbox::receive() {
  Message received;
  if (actors_->closed) return received;
  actors_->loop->receive([&](message_atom, const Message& message) { received = message; },
                         [&](close_atom) { actors_->closed = true; });
  return received;
}

void LoopMailbox::stop() {
  caf::anon_send(caf::actor_cast<caf::actor>(actors_->loop), close_atom::value);
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe

#include "troupe/runtime/client/store_asks.hpp"

#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReaderAnswers = 10s;
/// Exceeds the 30 s after which the agent answers that it has no memory.
constexpr Duration kMemoryAnswers = 40s;
/// Memory mostly comes free with the next write to disk. A worker that waits for longer gives its
/// CPU back, since a process that would free memory may need it.
constexpr Duration kMemoryGrace = 250ms;
/// The most values that become the agent's at once, since their messages have to fit the queue.
constexpr int kMostReleased = 256;

}  // namespace

void StoreAsks::on_extent(const wire::GiveExtent& message, std::vector<Fd> descriptors) {
  Questions::Extent answer{store_.add_extent(message, std::move(descriptors))};
  const bool is_added = answer.added && *answer.added;
  if (is_added) out_.tell(wire::ExtentMapped{message.extent}, {});
  // The thread that asked may have timed out; the extent then serves others.
  if (!questions_.answer(message.request, answer)) return;
  if (is_added) store_.is_given();
  notify();
}

void StoreAsks::on_reader(const wire::GiveReader& message, std::vector<Fd> descriptors) {
  const Result<void> added = store_.add_reader(message, std::move(descriptors));
  questions_.answer_readers(message.is_segment, message.id, added ? nullptr : &added.error());
  notify();
}

Result<bool> StoreAsks::need_extent(std::uint64_t bytes) {
  Guard lock = gate_.guard();
  const std::uint64_t request = questions_.ask<Questions::Extent>();
  out_.tell(wire::NeedExtent{bytes, request}, {});
  waits_.idle_until(
      lock, [&] { return questions_.is_answered(request) || agent_.is_lost(); },
      steady_now() + kMemoryAnswers, kMemoryGrace);
  const auto answer = questions_.take<Questions::Extent>(request);
  if (!answer) return waits_.no_answer("the node's agent gave no memory within 40 s");
  if (answer->added) gate_.unlock_and_collect(lock);
  return answer->added;
}

bool StoreAsks::fetch_reader(bool is_segment, std::uint64_t id, Error& error) {
  Guard lock = gate_.guard();
  const std::uint64_t request = questions_.ask_reader(is_segment, id);
  out_.tell(wire::NeedReader{is_segment, id}, {});
  loop_->wait(
      lock,
      [&] {
        return questions_.is_answered(request) || agent_.is_lost() ||
               agent_.lack().is_lasting(steady_now());
      },
      steady_now() + kReaderAnswers);
  const auto answer = questions_.take<Questions::Reader>(request);
  if (!answer) {
    if (!agent_.is_lost() && !waits_.is_over() && agent_.lack().exists()) {
      error = DescriptorLack::error();
      return false;
    }
    error = waits_.no_answer("the node's agent gave no view of memory within 10 s");
    return false;
  }
  if (answer->failed) error = *answer->failed;
  return !answer->failed;
}

Result<objectstore::Location> StoreAsks::where_is(const wire::Location& name) {
  Guard lock = gate_.guard();
  const std::uint64_t request = questions_.ask<wire::NowAt>();
  out_.tell(wire::WhereIs{request, name}, {});
  waits_.idle_until(
      lock, [&] { return questions_.is_answered(request) || agent_.is_lost(); },
      steady_now() + kMemoryAnswers, kMemoryGrace);
  const auto answer = questions_.take<wire::NowAt>(request);
  if (!answer) return waits_.no_answer("the node's agent did not find an object within 40 s");
  if (answer->error) return Error(*answer->error);
  return store_location(answer->location);
}

void StoreAsks::release_memory() {
  gate_.collect();
  for (int left = kMostReleased; left > 0 && values_.objects().oldest_own() != nullptr; --left) {
    Entry& entry = *values_.objects().oldest_own();
    values_.objects().remove_own(entry);
    values_.promote(entry);
  }
  for (const objectstore::ExtentId extent : store_.trim())
    out_.tell(wire::GiveBack{extent.value}, {});
}

}  // namespace troupe::client

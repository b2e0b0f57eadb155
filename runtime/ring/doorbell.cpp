#include "troupe/runtime/ring/doorbell.hpp"

#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/ring/ring.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::ring {
namespace {
Error system_error(Code code, const char* what) {
  const int why = errno;
  return Error(code, std::string(what) + ": " + std::strerror(why) + "; " + memory_remedy(why));
}

std::uint32_t word_of(std::uint32_t slot) noexcept {
  return (slot / 64) % 64;
}
std::uint64_t bit_of(std::uint32_t number) noexcept {
  return std::uint64_t{1} << (number % 64);
}
}  // namespace

Result<Doorbell> Doorbell::create() {
  Fd memory = make_fd(memfd_create("troupe-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return system_error(Code::out_of_memory, "cannot create a doorbell (memfd_create)");
  if (!resize_memory(memory.get(), sizeof(DoorbellPage)))
    return system_error(Code::out_of_memory, "cannot size a doorbell (ftruncate)");
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  Fd event = make_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_error(Code::out_of_memory, "cannot create a doorbell (eventfd)");
  return attach(std::move(memory), std::move(event));
}

Result<Doorbell> Doorbell::attach(Fd memory, Fd event) {
  struct stat info{};
  if (fstat(memory.get(), &info) != 0 || info.st_size != static_cast<off_t>(sizeof(DoorbellPage)))
    return Error(Code::invalid_argument, "a peer's doorbell has the wrong size");
  // A peer that shrinks the file makes our next access raise SIGBUS, so it must be sealed. A file
  // that cannot be sealed answers -1.
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error(Code::invalid_argument, "a peer's doorbell is not sealed against shrinking");
  const int flags = fcntl(event.get(), F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0)
    return Error(Code::invalid_argument, "ringing a peer's doorbell could block");
  void* at =
      mmap(nullptr, sizeof(DoorbellPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return system_error(Code::out_of_memory, "cannot map a doorbell");
  Doorbell bell;
  bell.memory_ = std::move(memory);
  bell.event_ = std::move(event);
  bell.page_ = static_cast<DoorbellPage*>(at);
  return bell;
}

Doorbell::Doorbell(Doorbell&& other) noexcept
    : memory_(std::move(other.memory_)),
      event_(std::move(other.event_)),
      page_(std::exchange(other.page_, nullptr)),
      sleep_(other.sleep_),
      watched_(std::exchange(other.watched_, nullptr)),
      watched_slot_(other.watched_slot_),
      kept_word_(std::exchange(other.kept_word_, 0)),
      kept_slot_(other.kept_slot_) {}

Doorbell& Doorbell::operator=(Doorbell&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(event_, other.event_);
  std::swap(page_, other.page_);
  std::swap(sleep_, other.sleep_);
  std::swap(watched_, other.watched_);
  std::swap(watched_slot_, other.watched_slot_);
  std::swap(kept_word_, other.kept_word_);
  std::swap(kept_slot_, other.kept_slot_);
  return *this;
}

Doorbell::~Doorbell() {
  if (page_ != nullptr) munmap(page_, sizeof(DoorbellPage));
}

bool Doorbell::mark(std::uint32_t slot) noexcept {
  const std::uint32_t word = word_of(slot);
  const std::uint64_t bit = bit_of(slot);
  // Loads before it writes: a mark that is set already costs no write, and the cache line stays
  // shared.
  if ((page_->words[word].load(std::memory_order_seq_cst) & bit) == 0)
    page_->words[word].fetch_or(bit, std::memory_order_seq_cst);
  // The summary is checked even when the slot's bit was set already. A writer may have died between
  // the two marks; later writers of that word must still set the summary's bit.
  if ((page_->summary.load(std::memory_order_seq_cst) & bit_of(word)) == 0)
    page_->summary.fetch_or(bit_of(word), std::memory_order_seq_cst);
  return page_->sleeping.load(std::memory_order_seq_cst) != 0;
}

void Doorbell::wake_sleeper() noexcept {
  std::uint32_t sleep = page_->sleeping.load(std::memory_order_seq_cst);
  if (sleep == 0) return;
  wake();
  // The flag is reset after the event is written. If this writer dies between the two, the flag is
  // still set and other writers still wake the owner. The compare-exchange resets only the sleep
  // that was read above: a late writer must not take back the announcement of the next sleep.
  page_->sleeping.compare_exchange_strong(sleep, 0, std::memory_order_seq_cst);
}

void Doorbell::wake() noexcept {
  const std::uint64_t one = 1;
  if (write(event_.get(), &one, sizeof one) >= 0 || errno != EAGAIN) return;
  // The eventfd's counter is full. An owner that waits for edges may have seen all of them already,
  // so empty the counter and write again, which raises a new edge.
  std::uint64_t count = 0;
  [[maybe_unused]] auto n = read(event_.get(), &count, sizeof count);
  n = write(event_.get(), &one, sizeof one);
}

bool Doorbell::take(std::vector<std::uint32_t>& slots) noexcept {
  slots.clear();
  // The watched ring is read first and reported last. A slot that was marked before the watched
  // frame was published is then reported before the watched slot.
  const bool heard = watched_ != nullptr && !watched_->empty();
  if (marked()) take_marks(slots);
  if (heard) slots.push_back(watched_slot_);
  return !slots.empty();
}

void Doorbell::take_marks(std::vector<std::uint32_t>& slots) noexcept {
  // The watched slot's word is always read. Its summary bit stays set while the ring is watched, so
  // writers of other slots in that word do not set the summary's bit again.
  std::uint64_t summary =
      page_->summary.exchange(kept_word_, std::memory_order_seq_cst) | kept_word_;
  while (summary != 0) {
    const auto word = static_cast<std::uint32_t>(__builtin_ctzll(summary));
    summary &= summary - 1;
    const std::uint64_t kept = bit_of(word) == kept_word_ ? kept_slot_ : 0;
    std::uint64_t bits = page_->words[word].exchange(kept, std::memory_order_seq_cst) & ~kept;
    while (bits != 0) {
      slots.push_back(64 * word + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
      bits &= bits - 1;
    }
  }
}

bool Doorbell::marked() const noexcept {
  return page_->summary.load(std::memory_order_seq_cst) != kept_word_ ||
         (watched_ != nullptr && beside_watched());
}
bool Doorbell::only_watched() const noexcept {
  return watched_ != nullptr && !watched_->empty() && !marked();
}
bool Doorbell::beside_watched() const noexcept {
  return page_->words[word_of(watched_slot_)].load(std::memory_order_seq_cst) != kept_slot_;
}
bool Doorbell::watched_pending() const noexcept {
  return !watched_->empty() || beside_watched();
}

void Doorbell::watch(std::uint32_t slot, const Consumer& ring) noexcept {
  // Marks the slot and the summary in a writer's order. The slot watched before keeps its mark and
  // is reported once more.
  page_->words[word_of(slot)].fetch_or(bit_of(slot), std::memory_order_seq_cst);
  page_->summary.fetch_or(bit_of(word_of(slot)), std::memory_order_seq_cst);
  watched_ = &ring;
  watched_slot_ = slot;
  kept_word_ = bit_of(word_of(slot));
  kept_slot_ = bit_of(slot);
}

void Doorbell::unwatch() noexcept {
  watched_ = nullptr;
  kept_word_ = kept_slot_ = 0;
}

bool Doorbell::prepare_sleep() noexcept {
  if (watched_ != nullptr) {
    unwatch();
    return false;
  }
  const auto here = static_cast<std::uint32_t>(this_cpu() + 1);
  if (page_->slept_on.load(std::memory_order_relaxed) != here)
    page_->slept_on.store(here, std::memory_order_relaxed);
  if (++sleep_ == 0) sleep_ = 1;
  page_->sleeping.exchange(sleep_, std::memory_order_seq_cst);
  if (!pending()) return true;
  page_->sleeping.exchange(0, std::memory_order_seq_cst);
  return false;
}

void Doorbell::finish_sleep() noexcept {
  page_->sleeping.exchange(0, std::memory_order_seq_cst);
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = read(event_.get(), &count, sizeof count);
}

void Doorbell::sleep(Duration timeout) noexcept {
  if (!prepare_sleep()) return;
  pollfd entry{event_.get(), POLLIN, 0};
  wait_for({&entry, 1}, std::min<Duration>(timeout, std::chrono::hours(1)));
  finish_sleep();
}

}  // namespace troupe::ring

/// Helpers for tests of malformed frames: mutations of good frames, and a count of the bytes that
/// a reader requests from the allocator.
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/base/units.hpp"

#include <algorithm>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TROUPE_SANITIZED 1
#endif
#endif

namespace troupe::wire::samples {

/// Returns the bytes that this thread has ever requested; always zero under a sanitizer. Needs
/// hostile.cpp.
std::size_t allocated_bytes() noexcept;

/// Changes a good frame as a hostile peer would.
inline void mutate(Random& random, Blob& frame) {
  const auto word_at = [&](std::size_t i) { return frame.data() + i * 8; };
  const auto any_word = [&] { return random.below(std::max<std::size_t>(1, frame.size() / 8)); };
  for (std::size_t n = 1 + random.below(3); n > 0 && frame.size() >= 16; --n) {
    switch (random.below(8)) {
      case 0: frame[random.below(frame.size())] ^= std::byte(1U << random.below(8)); break;
      case 1: frame[random.below(frame.size())] = static_cast<std::byte>(random()); break;
      case 2: frame.resize(8 + random.below(frame.size() - 8)); break;
      case 3: {  // a pointer of any kind, anywhere
        const std::uint64_t word = random.chance(0.5) ? random() : random() & 0x0007000f0000003f;
        std::memcpy(word_at(any_word()), &word, 8);
        break;
      }
      case 4: {  // extreme numbers
        const std::uint32_t edges[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
        std::memcpy(frame.data() + 4 * random.below(frame.size() / 4), &edges[random.below(6)], 4);
        break;
      }
      case 5: std::memcpy(word_at(any_word()), word_at(any_word()), 8); break;
      case 6: {  // the head announces more or less than there is
        const auto words = static_cast<std::uint32_t>(random.below(2 * frame.size() / 8));
        std::memcpy(frame.data(), &words, 4);
        break;
      }
      default: {  // repeats a part elsewhere
        const std::size_t size = random.below(frame.size() / 2);
        std::memmove(frame.data() + random.below(frame.size() - size),
                     frame.data() + random.below(frame.size() - size), size);
      }
    }
  }
}

}  // namespace troupe::wire::samples

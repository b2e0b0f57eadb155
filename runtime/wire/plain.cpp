#include "troupe/runtime/wire/plain.hpp"

#include <bit>
#include <cstring>

namespace troupe::wire {
namespace {

/// A frame with holes.
class Stencil {
 public:
  static constexpr std::size_t kFields = 6 + 2 * kPlainArguments;

  /// `message` must encode to the same frame each time, but for its fields.
  explicit Stencil(const CallMessage& message) {
    FrameWriter writer;
    const BlobView frame = writer.encode(message);
    count_ = frame.size() / sizeof(std::uint64_t);
    TROUPE_ASSERT(count_ >= 2 && count_ <= PlainFrame{}.words.size(), "a plain message is small");
    std::memcpy(words_.data(), frame.data(), frame.size());
    keep_.fill(~std::uint64_t{0});
  }
  /// The next field: `changed` is the message with all bits of that field inverted, `value` what it
  /// was before.
  void add_field(const CallMessage& changed, std::uint64_t value) {
    FrameWriter writer;
    const BlobView frame = writer.encode(changed);
    TROUPE_ASSERT(frame.size() == count_ * sizeof(std::uint64_t) && fields_ < kFields,
                  "a number changes no size");
    std::array<std::uint64_t, PlainFrame{}.words.size()> other{};
    std::memcpy(other.data(), frame.data(), frame.size());
    Field& field = field_[fields_++];
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint64_t differs = other[i] ^ words_[i];
      if (differs == 0) continue;
      TROUPE_ASSERT(field.ones == 0, "a number lies in one word");
      field.word = static_cast<std::uint32_t>(i);
      field.shift = static_cast<std::uint32_t>(std::countr_zero(differs));
      field.ones = differs >> field.shift;
      field.flip = ((words_[i] >> field.shift) ^ value) & field.ones;
      keep_[i] &= ~differs;
    }
    TROUPE_ASSERT(field.ones == ~std::uint64_t{0} || field.ones == 0xFFFFFFFF,
                  "a field is a whole number");
  }
  /// To be called after the last field: then put() need not clear.
  void finish() noexcept {
    for (std::size_t i = 0; i < count_; ++i) words_[i] &= keep_[i];
  }

  std::size_t size() const noexcept { return count_ * sizeof(std::uint64_t); }
  void lay(PlainFrame& frame) const noexcept {
    std::memcpy(frame.words.data(), words_.data(), size());
  }
  void put(PlainFrame& frame, std::size_t number, std::uint64_t value) const noexcept {
    const Field& field = field_[number];
    frame.words[field.word] |= (value ^ field.flip) << field.shift;
  }
  bool fits(BlobView frame) const noexcept {
    if (frame.size() < size()) return false;
    std::uint64_t head = 0;
    std::memcpy(&head, frame.data(), sizeof head);
    if (((head & keep_[0]) ^ words_[0]) != 0) return false;  // mostly of another size
    Pair differs{};
    for (std::size_t i = 0; i + 1 < count_; i += 2)
      differs |= (pair_at(frame, i) & at<Pair>(keep_, i)) ^ at<Pair>(words_, i);
    if (count_ % 2 != 0) {  // the last one again, with the one before it
      const std::size_t i = count_ - 2;
      differs |= (pair_at(frame, i) & at<Pair>(keep_, i)) ^ at<Pair>(words_, i);
    }
    return (differs[0] | differs[1]) == 0;
  }
  std::uint64_t get(BlobView frame, std::size_t number) const noexcept {
    const Field& field = field_[number];
    std::uint64_t word = 0;
    std::memcpy(&word, frame.data() + field.word * sizeof word, sizeof word);
    return ((word >> field.shift) & field.ones) ^ field.flip;
  }

 private:
  /// Two words, handled together.
  using Pair = std::uint64_t __attribute__((vector_size(16)));
  static Pair pair_at(BlobView frame, std::size_t word) noexcept {
    Pair pair;
    std::memcpy(&pair, frame.data() + word * sizeof(std::uint64_t), sizeof pair);
    return pair;
  }
  template <class T, class Words>
  static T at(const Words& words, std::size_t word) noexcept {
    T value;
    std::memcpy(&value, words.data() + word, sizeof value);
    return value;
  }
  struct Field {
    std::uint32_t word = 0;
    std::uint32_t shift = 0;
    std::uint64_t ones = 0;
    std::uint64_t flip = 0;  ///< stored = value ^ flip: Cap'n Proto stores differences to a default
  };
  std::array<std::uint64_t, PlainFrame{}.words.size()> words_{};
  std::array<std::uint64_t, PlainFrame{}.words.size()> keep_{};
  std::array<Field, kFields> field_{};
  std::size_t count_ = 0;
  std::size_t fields_ = 0;
};

// Fields by number. Of a call: these, then offset and size of each argument.
enum : std::size_t { kSequence, kModule, kOffset, kActor, kAttempt, kResults, kArguments };
// Of a reply.
enum : std::size_t { kReplySequence, kIndex, kRan, kValueOffset, kValueSize };

/// Adds a field that `at(message)` refers to.
template <class Message, class At>
void add(Stencil& stencil, const Message& base, const At& at) {
  Message changed = base;
  auto& field = at(changed);
  const std::uint64_t before = field;
  field = ~field;
  stencil.add_field(CallMessage(std::move(changed)), before);
}

Stencil stencil_of_call(std::size_t arguments) {
  Call base;
  base.arguments.resize(arguments);
  for (Value& value : base.arguments) value.kind = Value::Kind::inline_bytes;
  Stencil stencil{CallMessage(base)};
  add(stencil, base, [](Call& m) -> auto& { return m.sequence; });
  add(stencil, base, [](Call& m) -> auto& { return m.function.module; });
  add(stencil, base, [](Call& m) -> auto& { return m.function.offset; });
  add(stencil, base, [](Call& m) -> auto& { return m.actor_low; });
  add(stencil, base, [](Call& m) -> auto& { return m.attempt; });
  add(stencil, base, [](Call& m) -> auto& { return m.results; });
  for (std::size_t i = 0; i < arguments; ++i) {
    add(stencil, base, [i](Call& m) -> auto& { return m.arguments[i].payload_offset; });
    add(stencil, base, [i](Call& m) -> auto& { return m.arguments[i].payload_size; });
  }
  stencil.finish();
  return stencil;
}

Stencil stencil_of_reply(bool has_value) {
  Reply base;
  if (has_value) base.value.kind = Value::Kind::inline_bytes;
  Stencil stencil{CallMessage(base)};
  add(stencil, base, [](Reply& m) -> auto& { return m.sequence; });
  add(stencil, base, [](Reply& m) -> auto& { return m.index; });
  add(stencil, base, [](Reply& m) -> auto& { return m.ran_ns; });
  if (has_value) {
    add(stencil, base, [](Reply& m) -> auto& { return m.value.payload_offset; });
    add(stencil, base, [](Reply& m) -> auto& { return m.value.payload_size; });
  }
  stencil.finish();
  return stencil;
}

struct Stencils {
  std::array<Stencil, kPlainArguments + 1> calls{stencil_of_call(0), stencil_of_call(1),
                                                 stencil_of_call(2), stencil_of_call(3),
                                                 stencil_of_call(4)};
  Stencil reply{stencil_of_reply(true)};
  Stencil nothing{stencil_of_reply(false)};
};
const Stencils& stencils() {
  static const Stencils all;
  return all;
}

bool within(const PlainRange& range, std::size_t payload) noexcept {
  return range.size <= kInlineValue && range.offset <= payload &&
         range.size <= payload - range.offset;
}

BlobView written(const PlainFrame& frame, const Stencil& stencil) noexcept {
  return {reinterpret_cast<const std::byte*>(frame.words.data()), stencil.size()};
}

}  // namespace

BlobView write_plain(const PlainCall& call, PlainFrame& frame) noexcept {
  const Stencil& stencil = stencils().calls[call.count];
  stencil.lay(frame);
  stencil.put(frame, kSequence, call.sequence);
  stencil.put(frame, kModule, call.function.module);
  stencil.put(frame, kOffset, call.function.offset);
  stencil.put(frame, kActor, call.actor_low);
  stencil.put(frame, kAttempt, call.attempt);
  stencil.put(frame, kResults, call.results);
  for (std::size_t i = 0; i < call.count; ++i) {
    stencil.put(frame, kArguments + 2 * i, call.arguments[i].offset);
    stencil.put(frame, kArguments + 2 * i + 1, call.arguments[i].size);
  }
  return written(frame, stencil);
}

BlobView write_plain(const PlainReply& reply, PlainFrame& frame) noexcept {
  const Stencils& all = stencils();
  const Stencil& stencil = reply.has_value ? all.reply : all.nothing;
  stencil.lay(frame);
  stencil.put(frame, kReplySequence, reply.sequence);
  stencil.put(frame, kIndex, reply.index);
  stencil.put(frame, kRan, reply.ran_ns);
  if (reply.has_value) {
    stencil.put(frame, kValueOffset, reply.value.offset);
    stencil.put(frame, kValueSize, reply.value.size);
  }
  return written(frame, stencil);
}

bool read_plain(BlobView frame, PlainCall& call, BlobView& payload) noexcept {
  std::size_t count = 0;
  const auto& calls = stencils().calls;
  while (!calls[count].fits(frame))
    if (++count == calls.size()) return false;
  const Stencil& stencil = calls[count];
  payload = frame.subspan(stencil.size());
  call.sequence = stencil.get(frame, kSequence);
  call.function.module = stencil.get(frame, kModule);
  call.function.offset = stencil.get(frame, kOffset);
  call.actor_low = stencil.get(frame, kActor);
  call.attempt = static_cast<std::uint32_t>(stencil.get(frame, kAttempt));
  call.results = static_cast<std::uint32_t>(stencil.get(frame, kResults));
  call.count = static_cast<std::uint32_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    PlainRange& range = call.arguments[i];
    range.offset = static_cast<std::uint32_t>(stencil.get(frame, kArguments + 2 * i));
    range.size = static_cast<std::uint32_t>(stencil.get(frame, kArguments + 2 * i + 1));
    if (!within(range, payload.size())) return false;
  }
  return true;
}

bool read_plain(BlobView frame, PlainReply& reply, BlobView& payload) noexcept {
  const Stencils& all = stencils();
  reply.has_value = all.reply.fits(frame);
  if (!reply.has_value && !all.nothing.fits(frame)) return false;
  const Stencil& stencil = reply.has_value ? all.reply : all.nothing;
  payload = frame.subspan(stencil.size());
  reply.sequence = stencil.get(frame, kReplySequence);
  reply.index = static_cast<std::uint32_t>(stencil.get(frame, kIndex));
  reply.ran_ns = stencil.get(frame, kRan);
  reply.value = {};
  if (reply.has_value) {
    reply.value.offset = static_cast<std::uint32_t>(stencil.get(frame, kValueOffset));
    reply.value.size = static_cast<std::uint32_t>(stencil.get(frame, kValueSize));
  }
  return within(reply.value, payload.size());
}

}  // namespace troupe::wire

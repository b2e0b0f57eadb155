#include "troupe/runtime/observe/answer_bytes.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe::observe {
namespace {

// All numbers have eight bytes.
static_assert(std::endian::native == std::endian::little, "frames are little-endian");
enum class CellTag : std::uint64_t { none, no, yes, whole, real, text };
constexpr std::size_t kMaxColumns = 32;

class Writer {
 public:
  void number(std::uint64_t value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void text(std::string_view words, std::size_t most) {
    words = words.substr(0, most);
    number(words.size());
    const auto* begin = reinterpret_cast<const std::byte*>(words.data());
    bytes_.insert(bytes_.end(), begin, begin + words.size());
  }
  void cell(const Cell& cell) {
    const auto tagged = [this](CellTag tag) { number(static_cast<std::uint64_t>(tag)); };
    if (const auto* flag = std::get_if<bool>(&cell)) {
      tagged(*flag ? CellTag::yes : CellTag::no);
    } else if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
      tagged(CellTag::whole);
      number(static_cast<std::uint64_t>(*whole));
    } else if (const auto* real = std::get_if<double>(&cell)) {
      tagged(CellTag::real);
      std::uint64_t bits = 0;
      std::memcpy(&bits, real, sizeof bits);
      number(bits);
    } else if (const auto* words = std::get_if<std::string>(&cell)) {
      tagged(CellTag::text);
      text(*words, kMaxTextBytes);
    } else {
      tagged(CellTag::none);
    }
  }
  std::size_t size() const noexcept { return bytes_.size(); }
  void cut(std::size_t size) { bytes_.resize(size); }
  void overwrite(std::size_t at, std::uint64_t value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  Blob take() { return std::move(bytes_); }

 private:
  Blob bytes_;
};

/// Reads what Writer wrote. After the first thing that does not fit it gives zeros.
class Reader {
 public:
  explicit Reader(BlobView bytes) : bytes_(bytes) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    if (bytes_.size() < sizeof value) return fail();
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  /// Reads how many elements follow, of eight bytes each at least.
  std::size_t count(std::size_t most) {
    const std::uint64_t count = number();
    if (count > most || count > bytes_.size() / sizeof count) return fail();
    return static_cast<std::size_t>(count);
  }
  bool flag() {
    const std::uint64_t value = number();
    return value > 1 ? fail() != 0 : value == 1;
  }
  std::string text(std::size_t most) {
    const std::uint64_t size = number();
    if (size > most || size > bytes_.size()) {
      fail();
      return {};
    }
    const auto length = static_cast<std::size_t>(size);
    std::string words(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return words;
  }
  Cell cell() {
    switch (static_cast<CellTag>(number())) {
      case CellTag::none: return {};
      case CellTag::no: return false;
      case CellTag::yes: return true;
      case CellTag::whole: return static_cast<std::int64_t>(number());
      case CellTag::real: {
        const std::uint64_t bits = number();
        double real = 0;
        std::memcpy(&real, &bits, sizeof real);
        return real;
      }
      case CellTag::text: return text(kMaxTextBytes);
    }
    fail();
    return {};
  }
  bool is_good() const noexcept { return is_good_; }
  bool is_at_end() const noexcept { return is_good_ && bytes_.empty(); }

 private:
  std::uint64_t fail() noexcept {
    is_good_ = false;
    bytes_ = {};
    return 0;
  }
  BlobView bytes_;
  bool is_good_ = true;
};

constexpr std::size_t kMaxWhyBytes = 1024;
constexpr std::size_t kMaxPlaces = 4096;  ///< workers and requests of a Surroundings

}  // namespace

Blob encode(const Answer& answer) {
  Writer out;
  out.number(answer.total);
  out.number(answer.matched);
  out.number(answer.more_unanswered);
  const std::size_t more_at = out.size();
  out.number(answer.more ? 1 : 0);
  const std::size_t unanswered = std::min(answer.unanswered.size(), kMaxUnanswered);
  out.number(unanswered);
  for (std::size_t i = 0; i < unanswered; ++i) {
    const Unanswered& source = answer.unanswered[i];
    out.text(source.node, kMaxIdBytes);
    out.number(static_cast<std::uint64_t>(source.pid));
    out.text(source.why, kMaxWhyBytes);
  }
  const std::size_t rows_at = out.size();
  out.number(0);
  std::uint64_t rows = 0;
  for (const Row& row : answer.rows) {
    const std::size_t before = out.size();
    out.text(row.id, kMaxIdBytes);
    out.number(row.cells.size());
    for (const Cell& cell : row.cells) out.cell(cell);
    if (out.size() > kMaxAnswerBytes || rows == kMaxSums) {
      out.cut(before);
      out.overwrite(more_at, 1);
      break;
    }
    ++rows;
  }
  out.overwrite(rows_at, rows);
  return out.take();
}

Result<Answer> decode_answer(BlobView bytes) {
  Reader in(bytes.size() > kMaxAnswerBytes ? BlobView() : bytes);
  Answer answer;
  answer.total = in.number();
  answer.matched = in.number();
  answer.more_unanswered = in.number();
  answer.more = in.flag();
  for (std::size_t left = in.count(kMaxUnanswered); left > 0 && in.is_good(); --left) {
    Unanswered source;
    source.node = in.text(kMaxIdBytes);
    source.pid = static_cast<std::int64_t>(in.number());
    source.why = in.text(kMaxWhyBytes);
    answer.unanswered.push_back(std::move(source));
  }
  for (std::size_t left = in.count(kMaxSums); left > 0 && in.is_good(); --left) {
    Row row;
    row.id = in.text(kMaxIdBytes);
    for (std::size_t cells = in.count(kMaxColumns); cells > 0 && in.is_good(); --cells)
      row.cells.push_back(in.cell());
    answer.rows.push_back(std::move(row));
  }
  if (!in.is_at_end())
    return Error(Code::invalid_argument, "an answer with rows is damaged or too long");
  return answer;
}

Blob encode(const Surroundings& surroundings) {
  Writer out;
  out.text(surroundings.self, kMaxIdBytes);
  /// Writes as many elements as fit.
  const auto list = [&out](const auto& elements, const auto& write) {
    const std::size_t count_at = out.size();
    out.number(0);
    std::uint64_t count = 0;
    for (const auto& [key, value] : elements) {
      const std::size_t before = out.size();
      out.number(key.value);
      write(value);
      if (out.size() + sizeof count > kMaxSurroundingsBytes) {
        out.cut(before);
        break;
      }
      ++count;
    }
    out.overwrite(count_at, count);
  };
  list(surroundings.whys, [&](const std::string& why) { out.text(why, kMaxIdBytes); });
  list(surroundings.workers, [&](const Surroundings::Worker& worker) {
    out.text(worker.name, kMaxIdBytes);
    out.number(worker.blocked ? 1 : 0);
    out.number(worker.is_here ? 1 : 0);
  });
  return out.take();
}

Result<Surroundings> decode_surroundings(BlobView bytes) {
  Reader in(bytes.size() > kMaxSurroundingsBytes ? BlobView() : bytes);
  Surroundings surroundings;
  surroundings.self = in.text(kMaxIdBytes);
  for (std::size_t left = in.count(kMaxPlaces); left > 0 && in.is_good(); --left) {
    const LeaseKey key = LeaseKey::of(in.number());
    surroundings.whys[key] = in.text(kMaxIdBytes);
  }
  for (std::size_t left = in.count(kMaxPlaces); left > 0 && in.is_good(); --left) {
    Surroundings::Worker& worker = surroundings.workers[ProcessIndex::of(in.number())];
    worker.name = in.text(kMaxIdBytes);
    worker.blocked = in.flag();
    worker.is_here = in.flag();
  }
  if (!in.is_at_end())
    return Error(Code::invalid_argument, "the surroundings of a process are damaged or too long");
  return surroundings;
}

}  // namespace troupe::observe

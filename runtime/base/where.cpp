#include "troupe/runtime/base/where.hpp"

#include "troupe/runtime/base/visible_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kShown = 40;  ///< the most characters of a word that an error repeats

bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_control(char c) noexcept {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}
bool ends_word(char c) noexcept {
  return is_blank(c) || is_control(c) ||
         std::string_view("()'\"=!<>~").find(c) != std::string::npos;
}

std::string quoted(std::string_view word) {
  return "'" + visible_text(word, kShown) + "'";
}

std::string list_of(std::span<const WhereField> fields) {
  constexpr std::size_t kMost = 2000;
  std::string list;
  for (const WhereField& field : fields) {
    if (list.size() > kMost) return list + ", ...";
    list += (list.empty() ? "" : ", ") + visible_text(field.name, kShown);
  }
  return list.empty() ? "none" : list;
}

std::optional<std::size_t> index_of(std::string_view name, std::span<const WhereField> fields) {
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == name) return i;
  return std::nullopt;
}

enum class Unit : std::uint8_t { none, time, bytes };
struct Number {
  double value = 0;  ///< in nanoseconds or bytes if there is a unit
  Unit unit = Unit::none;
};

/// Reads a number with or without a unit; nullopt: the word is something else.
std::optional<Number> number_of(std::string_view word) noexcept {
  struct Scale {
    std::string_view name;
    double factor;
    Unit unit;
  };
  static constexpr Scale kScales[] = {
      {"", 1, Unit::none},          {"ns", 1, Unit::time},        {"us", 1e3, Unit::time},
      {"ms", 1e6, Unit::time},      {"s", 1e9, Unit::time},       {"m", 60e9, Unit::time},
      {"h", 3600e9, Unit::time},    {"d", 86400e9, Unit::time},   {"B", 1, Unit::bytes},
      {"KiB", 0x1p10, Unit::bytes}, {"MiB", 0x1p20, Unit::bytes}, {"GiB", 0x1p30, Unit::bytes},
      {"TiB", 0x1p40, Unit::bytes}};
  double value = 0;
  const char* const begin = word.data();
  const char* const end = begin + word.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc{}) return std::nullopt;
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  for (const Scale& scale : kScales)
    if (unit == scale.name) return Number{value * scale.factor, scale.unit};
  return std::nullopt;
}

int order_of(double a, double b) noexcept {
  return a < b ? -1 : a > b ? 1 : 0;
}

}  // namespace

/// Reads a filter from left to right. The first problem ends the reading: error_ is set, and each
/// function returns at once.
class WhereParser {
 public:
  WhereParser(std::string_view text, std::span<const WhereField> fields)
      : text_(text), fields_(fields) {}

  Result<Where> parse() {
    if (text_.size() > Where::kMaxBytes)
      return Error(Code::invalid_argument, "the filter has " + std::to_string(text_.size()) +
                                               " bytes, and " + std::to_string(Where::kMaxBytes) +
                                               " are the most: write a shorter one");
    advance();
    if (!error_ && token_.kind == TokenKind::end) return std::move(where_);
    alternatives();
    if (!error_ && token_.kind == TokenKind::close)
      fail("this ')' has no '(': remove one, or add the other");
    if (!error_ && token_.kind != TokenKind::end)
      fail("expected 'and', 'or' or the end instead of " + shown());
    if (error_) return *error_;
    return std::move(where_);
  }

 private:
  using Node = Where::Node;
  using Kind = Where::Kind;
  using Op = Where::Op;
  enum class TokenKind : std::uint8_t { end, word, quoted, sign, open, close };
  struct Token {
    TokenKind kind = TokenKind::end;
    std::size_t at = 0;
    std::string text;
  };

  void fail(std::size_t at, const std::string& why) {
    if (error_) return;
    const std::size_t column = columns_of(text_.substr(0, at)) + 1;
    error_ = Error(Code::invalid_argument,
                   "column " + std::to_string(column) + " of the filter: " + why);
    token_ = Token{TokenKind::end, text_.size(), {}};
  }
  void fail(const std::string& why) { fail(token_.at, why); }
  std::string shown() const {
    return token_.kind == TokenKind::end ? "the end of the filter" : quoted(token_.text);
  }

  /// Reads the next token.
  void advance() {
    if (error_) return;
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    token_ = Token{TokenKind::end, at_, {}};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (is_control(c)) return fail(at_, "a control character stands here: remove it");
    if (c == '(' || c == ')') {
      token_.kind = c == '(' ? TokenKind::open : TokenKind::close;
      token_.text = text_[at_++];
    } else if (c == '\'' || c == '"') {
      read_quoted(c);
    } else if (ends_word(c)) {
      token_.kind = TokenKind::sign;
      token_.text = text_[at_++];
      if (c != '~' && at_ < text_.size() && text_[at_] == '=') token_.text += text_[at_++];
    } else {
      token_.kind = TokenKind::word;
      while (at_ < text_.size() && !ends_word(text_[at_])) token_.text += text_[at_++];
    }
  }
  void read_quoted(char quote) {
    token_.kind = TokenKind::quoted;
    for (++at_; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return;
      }
      if (c == '\\' && at_ + 1 < text_.size() &&
          (text_[at_ + 1] == quote || text_[at_ + 1] == '\\'))
        c = text_[++at_];
      token_.text += c;
    }
    fail("the text that begins here has no closing " + std::string(1, quote));
  }

  bool take_word(std::string_view word) {
    if (token_.kind != TokenKind::word || token_.text.size() != word.size()) return false;
    const auto same = [](char a, char b) { return (a | 0x20) == b; };
    if (!std::equal(word.begin(), word.end(), token_.text.begin(),
                    [&](char b, char a) { return same(a, b); }))
      return false;
    advance();
    return true;
  }

  std::size_t add(Node node) {
    where_.nodes_.push_back(std::move(node));
    return where_.nodes_.size() - 1;
  }
  std::size_t add(Kind kind, std::size_t left, std::size_t right) {
    Node node;
    node.kind = kind;
    node.left = left;
    node.right = right;
    return add(std::move(node));
  }
  bool go_deeper() {
    if (++depth_ <= Where::kMaxDepth) return true;
    fail("the filter nests deeper than " + std::to_string(Where::kMaxDepth) +
         ": write it with fewer parentheses and 'not'");
    return false;
  }

  std::size_t alternatives() {
    std::size_t left = conjunction();
    while (!error_ && take_word("or")) left = add(Kind::either, left, conjunction());
    return left;
  }
  std::size_t conjunction() {
    std::size_t left = condition();
    while (!error_ && take_word("and")) left = add(Kind::both, left, condition());
    return left;
  }
  std::size_t condition() {
    if (error_) return 0;
    if (take_word("not")) {
      if (!go_deeper()) return 0;
      const std::size_t inner = condition();
      --depth_;
      return add(Kind::inverse, inner, inner);
    }
    if (token_.kind != TokenKind::open) return comparison();
    const std::size_t at = token_.at;
    if (!go_deeper()) return 0;
    advance();
    const std::size_t inner = alternatives();
    --depth_;
    if (token_.kind == TokenKind::close)
      advance();
    else if (token_.kind == TokenKind::end)
      fail(at, "this '(' has no ')'");
    else
      fail("expected 'and', 'or' or ')' instead of " + shown());
    return inner;
  }
  std::size_t comparison() {
    Node node;
    if (token_.kind != TokenKind::word && token_.kind != TokenKind::quoted) {
      fail("expected a field instead of " + shown() + "; the fields are " + list_of(fields_));
      return 0;
    }
    const auto field = index_of(token_.text, fields_);
    if (!field) {
      fail("no field is called " + shown() + "; the fields are " + list_of(fields_));
      return 0;
    }
    node.field = *field;
    advance();
    if (!read_operator(node)) return 0;
    read_value(node);
    return error_ ? 0 : add(std::move(node));
  }
  bool read_operator(Node& node) {
    static constexpr std::pair<std::string_view, Op> kSigns[] = {
        {"=", Op::equal}, {"==", Op::equal},  {"!=", Op::unequal}, {"<", Op::less},
        {"<=", Op::most}, {">", Op::greater}, {">=", Op::least},   {"~", Op::contains}};
    const std::string& name = fields_[node.field].name;
    for (const auto& [sign, op] : kSigns)
      if (token_.kind == TokenKind::sign && token_.text == sign) {
        node.op = op;
        const FieldKind kind = fields_[node.field].kind;
        if (op == Op::contains && kind != FieldKind::text && kind != FieldKind::any) {
          fail("'~' searches in texts, and " + quoted(name) + " is none: use = != < <= > or >=");
          return false;
        }
        advance();
        return !error_;
      }
    fail("expected = != < <= > >= or ~ after " + quoted(name) + " instead of " + shown());
    return false;
  }
  void read_value(Node& node) {
    if (token_.kind != TokenKind::word && token_.kind != TokenKind::quoted)
      return fail("expected a value instead of " + shown() +
                  "; put a text with signs or blanks into quotes");
    const bool is_word = token_.kind == TokenKind::word;
    const WhereField& field = fields_[node.field];
    node.none =
        is_word && token_.text == "none" && (node.op == Op::equal || node.op == Op::unequal);
    const auto number = is_word ? number_of(token_.text) : std::nullopt;
    if (number && (number->unit == Unit::none || field.kind != FieldKind::any))
      node.number = number->value;
    if (!node.none) check_value(field, number);
    if (!node.none && (node.op == Op::equal || node.op == Op::unequal)) check_text(field);
    node.text = std::move(token_.text);
    advance();
  }
  /// Fails if the field has only other texts.
  void check_text(const WhereField& field) {
    if (error_ || field.values.empty()) return;
    if (std::find(field.values.begin(), field.values.end(), token_.text) != field.values.end())
      return;
    std::string texts;
    for (const std::string_view value : field.values)
      texts += (texts.empty() ? "" : ", ") + std::string(value);
    fail(quoted(field.name) + " is never " + shown() + "; it is one of " + texts);
  }
  /// Fails if the field cannot have such a value.
  void check_value(const WhereField& field, const std::optional<Number>& number) {
    const bool plain = number && number->unit == Unit::none;
    const std::string what = quoted(field.name) + " is a ";
    switch (field.kind) {
      case FieldKind::number:
        if (!plain) fail(what + "number, and " + shown() + " is not: write one like 8 or 1e-3");
        return;
      case FieldKind::time:
        if (!number || (number->unit != Unit::time && !(plain && number->value == 0)))
          fail(what + "time, and " + shown() + " is not: write one like 500ms, 10s, 5m, 2h or 1d");
        return;
      case FieldKind::bytes:
        if (!number || number->unit == Unit::time)
          fail(what + "size, and " + shown() + " is not: write one like 4096, 64KiB or 1.5GiB");
        return;
      case FieldKind::text:
      case FieldKind::any: return;
    }
  }

  const std::string_view text_;
  const std::span<const WhereField> fields_;
  std::size_t at_ = 0;  // of the next token
  std::size_t depth_ = 0;
  Token token_;
  std::optional<Error> error_;
  Where where_;
};

Result<Where> Where::parse(std::string_view text, std::span<const WhereField> fields) {
  return WhereParser(text, fields).parse();
}

bool Where::matches(const RowFields& row) const {
  return nodes_.empty() || holds(nodes_.size() - 1, row);
}

std::optional<std::string_view> Where::text_of_all(std::size_t field) const noexcept {
  if (nodes_.empty()) return std::nullopt;
  return text_of_all(nodes_.size() - 1, field);
}

std::optional<std::string_view> Where::text_of_all(std::size_t index,
                                                   std::size_t field) const noexcept {
  const Node& node = nodes_[index];
  if (node.kind == Kind::both) {
    const auto left = text_of_all(node.left, field);
    return left ? left : text_of_all(node.right, field);
  }
  const bool is_it = node.kind == Kind::compare && node.field == field && node.op == Op::equal &&
                     !node.none && !node.number;
  return is_it ? std::optional<std::string_view>(node.text) : std::nullopt;
}

bool Where::holds(std::size_t index, const RowFields& row) const {
  const Node& node = nodes_[index];
  switch (node.kind) {
    case Kind::both: return holds(node.left, row) && holds(node.right, row);
    case Kind::either: return holds(node.left, row) || holds(node.right, row);
    case Kind::inverse: return !holds(node.left, row);
    case Kind::compare: break;
  }
  return holds(node, row(node.field));
}

bool Where::holds(Op op, int order) noexcept {
  switch (op) {
    case Op::equal: return order == 0;
    case Op::unequal: return order != 0;
    case Op::less: return order < 0;
    case Op::most: return order <= 0;
    case Op::greater: return order > 0;
    case Op::least: return order >= 0;
    case Op::contains: break;
  }
  return false;
}

bool Where::holds(const Node& node, const FieldValue& value) {
  if (node.none && std::holds_alternative<std::monostate>(value)) return node.op == Op::equal;
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    if (node.op == Op::contains) return text->find(node.text) != std::string_view::npos;
    return holds(node.op, node.op == Op::equal || node.op == Op::unequal
                              ? text->compare(node.text)
                              : compare_naturally(*text, node.text));
  }
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr || !node.number) return node.op == Op::unequal;
  if (std::isnan(*number) || std::isnan(*node.number)) {
    const bool both = std::isnan(*number) && std::isnan(*node.number);
    return (node.op == Op::equal && both) || (node.op == Op::unequal && !both);
  }
  return holds(node.op, order_of(*number, *node.number));
}

Result<SortBy> SortBy::parse(std::string_view text, std::span<const WhereField> fields) {
  SortBy sort;
  auto field = index_of(text, fields);
  std::optional<bool> descending;
  if (const auto colon = text.rfind(':'); !field && colon != std::string_view::npos) {
    const std::string_view direction = text.substr(colon + 1);
    if (direction != "asc" && direction != "desc")
      return Error(Code::invalid_argument, "the order " + quoted(text) + " ends in " +
                                               quoted(direction) +
                                               ": write FIELD, FIELD:asc or FIELD:desc");
    descending = direction == "desc";
    field = index_of(text.substr(0, colon), fields);
  }
  if (!field)
    return Error(Code::invalid_argument, "the order names " + quoted(text) +
                                             ", which is no field; the fields are " +
                                             list_of(fields));
  sort.field_ = *field;
  const FieldKind kind = fields[*field].kind;
  sort.descending_ = descending.value_or(kind != FieldKind::text && kind != FieldKind::any);
  return sort;
}

int SortBy::compare(const FieldValue& a, const FieldValue& b) const noexcept {
  // 0: a number, 1: a text, 2: NaN, 3: none. The direction changes the order of the first two.
  const auto rank = [](const FieldValue& value) {
    if (std::holds_alternative<std::monostate>(value)) return 3;
    const auto* number = std::get_if<double>(&value);
    return number == nullptr ? 1 : std::isnan(*number) ? 2 : 0;
  };
  const int turn = descending_ ? -1 : 1;
  const int x = rank(a), y = rank(b);
  if (x != y) return (x >= 2 || y >= 2 ? 1 : turn) * (x < y ? -1 : 1);
  if (x >= 2) return 0;
  if (x == 0) return turn * order_of(*std::get_if<double>(&a), *std::get_if<double>(&b));
  return turn *
         compare_naturally(*std::get_if<std::string_view>(&a), *std::get_if<std::string_view>(&b));
}

int compare_naturally(std::string_view a, std::string_view b) noexcept {
  const auto run_at = [](std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    return text.substr(at, end - at);
  };
  const auto significant = [](std::string_view digits) {
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
  };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const std::string_view x = run_at(a, i), y = run_at(b, j);
    if (!x.empty() && !y.empty()) {
      const std::string_view p = significant(x), q = significant(y);
      if (p.size() != q.size()) return p.size() < q.size() ? -1 : 1;
      if (const int order = p.compare(q); order != 0) return order < 0 ? -1 : 1;
      i += x.size();
      j += y.size();
    } else {
      const auto c = static_cast<unsigned char>(a[i++]), d = static_cast<unsigned char>(b[j++]);
      if (c != d) return c < d ? -1 : 1;
    }
  }
  if (i < a.size() || j < b.size()) return i < a.size() ? 1 : -1;
  const int order = a.compare(b);  // they differ in leading zeros at most
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace troupe

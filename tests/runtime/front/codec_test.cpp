/// Tests round trips of everything that may cross to another process, and malformed bytes.
#include "troupe/runtime/codec.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <complex>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace {

using namespace std::chrono_literals;
using troupe::decode;
using troupe::encode;

template <class T>
T round_trip(const T& value) {
  const troupe::Blob bytes = encode(value);
  EXPECT_EQ(bytes.size(), troupe::encoded_size(value));
  return decode<T>(bytes);
}
template <class T>
void same(const T& value) {
  EXPECT_TRUE(round_trip(value) == value) << typeid(T).name();
}

enum class Color : std::uint8_t { red, green };
struct Point {
  int x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};
struct Mixed {
  std::string name;
  std::vector<Point> points;
  std::map<std::string, int> counts;
  std::optional<Color> color;
  bool flag = false;
  bool operator==(const Mixed&) const = default;
};
struct Empty {
  bool operator==(const Empty&) const = default;
};
struct Tree {
  int value = 0;
  std::vector<Tree> children;
  bool operator==(const Tree&) const = default;
};
struct Chain {
  int value = 0;
  std::unique_ptr<Chain> next;
};
class Polygon {
 public:
  Polygon() = default;
  Polygon(std::string name, std::vector<Point> corners)
      : name_(std::move(name)), corners_(std::move(corners)) {}
  bool operator==(const Polygon&) const = default;

 private:
  friend auto fields(Polygon& p) { return std::tie(p.name_, p.corners_); }
  std::string name_;
  std::vector<Point> corners_;
};
struct Wide {
  Wide() {}
  Wide(float a, float b) : x(a), y(b) {}
  float x = 0, y = 0;
  bool operator==(const Wide&) const = default;
};
struct Sixty {
  int a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
      a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39,
      a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58,
      a59, a60, a61, a62, a63;
  std::string last;
  bool operator==(const Sixty&) const = default;
};

}  // namespace
template <>
inline constexpr bool troupe::bytes_are_value<Wide> = true;
namespace {

// Types that must be refused, though the compiler calls some of them trivially copyable.
struct HoldsPointer {
  int n;
  const char* text;
};
struct HoldsSpan {
  std::span<const int> span;
};
struct HoldsView {
  int n;
  std::string_view view;
};
struct HoldsFunction {
  void (*call)();
};
struct HoldsIterator {
  std::vector<int>::iterator at;
};
struct HoldsReference {
  int& r;
};
struct Deep {
  std::vector<std::map<int, std::optional<HoldsPointer>>> deep;
};
struct HasArray {
  int n;
  int a[3];
};
struct HasUnion {
  int n;
  union {
    int a;
    float b;
  };
};
struct HasBits {
  int a : 3;
  int b : 5;
};
struct Derived : Point {
  int z;
};
static_assert(std::is_trivially_copyable_v<HoldsPointer> &&
              std::is_trivially_copyable_v<HoldsSpan>);
static_assert(!troupe::can_cross<int*> && !troupe::can_cross<HoldsPointer> &&
              !troupe::can_cross<HoldsSpan>);
static_assert(!troupe::can_cross<HoldsView> && !troupe::can_cross<HoldsFunction> &&
              !troupe::can_cross<HoldsIterator>);
static_assert(!troupe::can_cross<HoldsReference> && !troupe::can_cross<Deep> &&
              !troupe::can_cross<HasArray>);
static_assert(!troupe::can_cross<HasUnion> && !troupe::can_cross<HasBits> &&
              !troupe::can_cross<Derived>);
static_assert(!troupe::can_cross<std::shared_ptr<int>> &&
              !troupe::can_cross<std::unique_ptr<int[]>>);
static_assert(!troupe::can_cross<std::array<int*, 2>> &&
              !troupe::can_cross<std::pair<int, std::string_view>>);
static_assert(troupe::can_cross<Sixty> && troupe::can_cross<Tree> && troupe::can_cross<Chain>);
static_assert(troupe::can_cross<std::vector<troupe::Ref<int>>>);
// A type is encoded as its memory only where every leaf allows any bits.
static_assert(troupe::detail::shape_of<Point>.bytes && !troupe::detail::shape_of<bool>.bytes);
static_assert(!troupe::detail::shape_of<std::pair<int, bool>>.bytes);
// A fingerprint depends on the structure, not on names.
struct Point2 {
  int a;
  double b;
};
static_assert(troupe::fingerprint<Point> == troupe::fingerprint<Point2>);
static_assert(troupe::fingerprint<Point> != troupe::fingerprint<std::pair<double, int>>);
static_assert(troupe::fingerprint<std::vector<int>> != troupe::fingerprint<std::vector<unsigned>>);

TEST(Codec, standard_types_come_back_equal) {
  same(42);
  same(-1.5);
  same('x');
  same(true);
  same(std::byte{7});
  same(Color::green);
  same(std::string("hello"));
  same(std::string(100'000, 'x'));
  same(std::u16string(u"wide"));
  same(std::vector<int>{1, 2, 3});
  same(std::vector<std::string>{"a", "", "ccc"});
  same(std::vector<bool>{true, false, true, true, false, true, false, true, true});
  same(std::array<int, 3>{1, 2, 3});
  same(std::array<std::string, 2>{"a", "b"});
  same(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  same(std::unordered_map<int, std::string>{{1, "a"}, {2, "b"}});
  same(std::multimap<int, int>{{1, 2}, {1, 3}});
  same(std::set<int>{3, 1, 2});
  same(std::unordered_set<std::string>{"x", "y"});
  same(std::deque<int>{1, 2});
  same(std::list<std::vector<int>>{{1}, {}});
  same(std::pair<int, std::string>{1, "x"});
  same(std::tuple<int, bool, std::string>{1, true, "x"});
  same(std::tuple<>{});
  same(std::optional<int>{});
  same(std::optional<std::string>{"x"});
  same(std::variant<int, std::string>{"x"});
  same(std::variant<std::monostate, int>{});
  same(std::chrono::milliseconds(5));
  same(std::chrono::system_clock::now());
  same(std::complex<float>(1, 2));
  same(std::vector<std::complex<double>>{{1, 2}, {3, 4}});
  same(std::vector<std::optional<std::map<int, std::string>>>{{{{1, "x"}}}, {}});
}

TEST(Codec, aggregates_and_classes_come_back_equal) {
  same(Point{1, 2});
  same(Empty{});
  same(std::vector<Empty>(5));
  same(Mixed{"m", {{1, 2}, {3, 4}}, {{"k", 1}}, Color::red, true});
  same(Tree{1, {{2, {}}, {3, {{4, {}}}}}});
  same(Polygon("p", {{1, 2}}));
  same(Wide(1, 2));
  same(std::vector<Wide>{{1, 2}, {3, 4}});
  Sixty sixty{};
  sixty.a63 = 63;
  sixty.last = "last";
  same(sixty);
}

TEST(Codec, a_unique_ptr_owns) {
  const auto value = round_trip(std::make_unique<std::string>("x"));
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, "x");
  EXPECT_FALSE(round_trip(std::unique_ptr<int>{}));
}

TEST(Codec, nesting_ends_at_a_thousand_levels_in_both_directions) {
  auto chain_of = [](int n) {
    Chain chain;
    for (int i = 0; i < n; ++i) {
      auto next = std::make_unique<Chain>(std::move(chain));
      chain = Chain{i, std::move(next)};
    }
    return chain;
  };
  EXPECT_EQ(round_trip(chain_of(900)).value, 899);
  EXPECT_THROW(encode(chain_of(1000)), troupe::InvalidArgument);
  troupe::Blob hostile;  // value, 1, value, 1, …
  for (int i = 0; i < 100'000; ++i) hostile.insert(hostile.end(), {{}, {}, {}, {}, std::byte{1}});
  EXPECT_THROW(decode<Chain>(hostile), troupe::InvalidArgument);
}

TEST(Codec, a_large_run_is_aligned_to_64_bytes) {
  const std::pair<std::string, std::vector<double>> value{"odd", std::vector<double>(1000, 1.5)};
  const troupe::Blob bytes = encode(value);
  troupe::detail::Reader reader(bytes, {}, nullptr);
  std::string text;
  troupe::detail::read(reader, text);
  const std::size_t n = reader.count(8);
  const std::byte* run = reader.run(n, 8, 8);
  EXPECT_EQ(n, 1000u);
  EXPECT_EQ((run - bytes.data()) % 64, 0);
}

TEST(Codec, an_array_inside_an_aggregate_points_into_the_bytes_and_keeps_them) {
  struct Batch {
    int label;
    troupe::Array<double> values;
  };
  const Batch batch{3, std::vector<double>(1000, 2.5)};
  auto* aligned = static_cast<std::byte*>(::operator new(16384, std::align_val_t(64)));
  const auto sizer = troupe::detail::measure(batch);
  std::vector<troupe::detail::ObjectHandle> handles;
  troupe::detail::encode_into({aligned, sizer.size()}, handles, batch);
  std::weak_ptr<const void> alive;
  Batch copy;
  {
    std::shared_ptr<const void> keep(aligned, [](const void* p) {
      ::operator delete(const_cast<void*>(p), std::align_val_t(64));
    });
    alive = keep;
    copy = troupe::detail::decode_value<Batch>({aligned, sizer.size()}, {}, &keep);
  }
  EXPECT_FALSE(alive.expired());
  EXPECT_GE(reinterpret_cast<const std::byte*>(copy.values.data()), aligned);
  EXPECT_LT(reinterpret_cast<const std::byte*>(copy.values.data()), aligned + 16384);
  EXPECT_EQ(copy.values, batch.values);
  copy = {};
  EXPECT_TRUE(alive.expired());
}

TEST(Codec, a_vector_reads_what_an_array_wrote) {
  EXPECT_EQ(decode<std::vector<int>>(encode(troupe::Array<int>{1, 2, 3})),
            (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(troupe::fingerprint<std::vector<int>>, troupe::fingerprint<troupe::Array<int>>);
}

struct ManyMembers {  // 65
  int a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
      a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39,
      a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58,
      a59, a60, a61, a62, a63, a64, a65;
};
static_assert(troupe::detail::shape_of<ManyMembers>.why == troupe::detail::Why::too_many);

struct ThrowsOnCopy {
  ThrowsOnCopy() = default;
  ThrowsOnCopy(const ThrowsOnCopy&) { throw 1; }
  ThrowsOnCopy& operator=(const ThrowsOnCopy&) = default;
  friend auto fields(ThrowsOnCopy& t) { return std::tie(t.n); }
  int n = 0;
};
TEST(Codec, a_variant_without_a_value_is_refused) {
  std::variant<int, ThrowsOnCopy> value;
  EXPECT_THROW(value.emplace<ThrowsOnCopy>(static_cast<const ThrowsOnCopy&>(ThrowsOnCopy())), int);
  ASSERT_TRUE(value.valueless_by_exception());
  EXPECT_THROW(encode(value), troupe::InvalidArgument);
}

TEST(Codec, a_tree_may_be_hundreds_of_levels_deep) {
  Tree tree;
  for (int i = 0; i < 900; ++i) {
    Tree up{i, {}};
    up.children.push_back(std::move(tree));
    tree = std::move(up);
  }
  same(tree);
}

TEST(Codec, a_ref_that_is_not_there_is_refused) {
  const troupe::Blob bytes{std::byte{2}, std::byte{0},
                           std::byte{1}};  // two Refs: none, and an object without a handle
  EXPECT_THROW(decode<std::vector<troupe::Ref<int>>>(bytes), troupe::InvalidArgument);
  const troupe::Blob none{std::byte{1}, std::byte{0}};
  EXPECT_FALSE(decode<std::vector<troupe::Ref<int>>>(none).at(0));
}

TEST(Codec, lies_about_sizes_indices_and_flags_are_refused) {
  auto blob = [](std::initializer_list<int> bytes) {
    troupe::Blob blob;
    for (int b : bytes) blob.push_back(static_cast<std::byte>(b));
    return blob;
  };
  EXPECT_THROW(decode<bool>(blob({2})), troupe::InvalidArgument);
  EXPECT_THROW(decode<std::optional<int>>(blob({2, 0, 0, 0, 0})), troupe::InvalidArgument);
  EXPECT_THROW((decode<std::variant<bool, char>>(blob({2, 0}))), troupe::InvalidArgument);
  EXPECT_THROW(decode<std::string>(blob({255, 255, 255, 255, 255, 255, 255, 255, 255, 1})),
               troupe::InvalidArgument);
  EXPECT_THROW(decode<std::string>(blob({255, 255, 255, 255, 255, 255, 255, 255, 255, 127})),
               troupe::InvalidArgument);
  EXPECT_THROW(decode<std::vector<double>>(blob({255, 255, 255, 255, 255, 255, 255, 255, 31})),
               troupe::InvalidArgument);
  EXPECT_THROW(decode<std::vector<Empty>>(blob({255, 255, 255, 255, 127})),
               troupe::InvalidArgument);
  EXPECT_THROW(decode<std::vector<bool>>(blob({255, 255, 255, 255, 127})), troupe::InvalidArgument);
  EXPECT_THROW(decode<int>(blob({1, 2, 3})), troupe::InvalidArgument);
  EXPECT_THROW(decode<int>(blob({1, 2, 3, 4, 5})), troupe::InvalidArgument);
  EXPECT_THROW((decode<std::tuple<>>(blob({1}))), troupe::InvalidArgument);
}

using Everything =
    std::tuple<std::vector<std::string>, std::map<std::string, std::vector<double>>,
               std::optional<std::variant<int, std::string, std::vector<bool>>>, Tree, Mixed,
               std::unique_ptr<Point>, std::set<int>, std::list<Color>, std::array<bool, 3>>;

std::string random_text(troupe::Random& random) {
  return std::string(random.below(random.chance(0.1) ? 2000 : 10),
                     static_cast<char>('a' + random.below(26)));
}
Tree random_tree(troupe::Random& random, int depth) {
  Tree tree{static_cast<int>(random()), {}};
  if (depth > 0)
    for (std::uint64_t i = random.below(3); i > 0; --i)
      tree.children.push_back(random_tree(random, depth - 1));
  return tree;
}
Everything random_everything(troupe::Random& random) {
  Everything e;
  auto& [texts, map, choice, tree, mixed, point, set, list, flags] = e;
  for (std::uint64_t i = random.below(5); i > 0; --i) texts.push_back(random_text(random));
  for (std::uint64_t i = random.below(4); i > 0; --i)
    map[random_text(random)] = std::vector<double>(random.below(200), random.uniform());
  if (random.chance(0.3)) choice.emplace(static_cast<int>(random()));
  if (random.chance(0.3)) choice.emplace(random_text(random));
  if (random.chance(0.3)) choice.emplace(std::vector<bool>(random.below(20), true));
  tree = random_tree(random, 4);
  mixed = {random_text(random),
           std::vector<Point>(random.below(100)),
           {{"a", 1}},
           Color::green,
           random.chance(0.5)};
  if (random.chance(0.5)) point = std::make_unique<Point>(Point{1, 2});
  for (std::uint64_t i = random.below(5); i > 0; --i)
    set.insert(static_cast<int>(random.below(100)));
  list.assign(random.below(4), Color::red);
  flags = {random.chance(0.5), true, false};
  return e;
}

TEST(Codec, random_values_come_back_equal) {
  troupe::Random random(7);
  for (int i = 0; i < 300; ++i) {
    const Everything value = random_everything(random);
    const troupe::Blob bytes = encode(value);
    EXPECT_EQ(encode(decode<Everything>(bytes)), bytes);
  }
}

TEST(Codec, damaged_bytes_give_a_value_or_an_error_and_nothing_else) {
  troupe::Random random(11);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    troupe::Blob bytes = encode(random_everything(random));
    for (std::uint64_t k = 1 + random.below(4); k > 0; --k) {
      const std::size_t at = random.below(bytes.size());
      switch (random.below(3)) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: bytes.resize(at + 1); break;
        default: bytes[at] = std::byte{255};
      }
    }
    // A copy of exactly the size, so that ASan sees a read of one byte too many.
    const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    try {
      (void)decode<Everything>({exact.get(), bytes.size()});
    } catch (const troupe::InvalidArgument&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

// Memory aligned as an object's bytes are.
std::shared_ptr<std::byte> parts_memory(std::size_t size) {
  return {static_cast<std::byte*>(::operator new(size, std::align_val_t(64))),
          [](std::byte* bytes) { ::operator delete(bytes, std::align_val_t(64)); }};
}

TEST(Parts, come_back_one_by_one_from_exactly_the_memory_that_was_asked_for) {
  troupe::Blob bytes;
  int asked = 0;
  const auto room = [&](std::size_t size) {
    ++asked;
    bytes.resize(size);
    return std::span(bytes);
  };
  troupe::encode_parts(room, std::string("weights"), 7, std::vector<double>{0.5, 1.5});
  EXPECT_EQ(asked, 1);

  troupe::PartReader reader(bytes);
  std::string name = "before";
  int step = 0;
  std::vector<double> values{9};
  reader.read(name);
  reader.read(step);
  EXPECT_THROW(reader.finish(), troupe::InvalidArgument);
  reader.read(values);
  reader.finish();
  EXPECT_EQ(name, "weights");
  EXPECT_EQ(step, 7);
  EXPECT_EQ(values, (std::vector<double>{0.5, 1.5}));
  EXPECT_THROW(reader.read(step), troupe::InvalidArgument);
}

/// A model of a size, without a default constructor: it must exist before a value is read into
/// it.
struct Sized {
  explicit Sized(std::size_t n) : values(n) {}
  std::vector<int> values;
  friend auto fields(Sized& s) { return std::tie(s.values); }
  [[maybe_unused]] friend auto fields(const Sized& s) { return std::tie(s.values); }
};

TEST(Parts, need_no_default_constructor) {
  troupe::Blob bytes;
  Sized sized(2);
  sized.values = {3, 4};
  troupe::encode_parts(
      [&](std::size_t size) {
        bytes.resize(size);
        return std::span(bytes);
      },
      sized);
  Sized other(0);
  troupe::PartReader(bytes).read(other);
  EXPECT_EQ(other.values, sized.values);
}

TEST(Parts, show_an_array_in_place_and_keep_its_owner_when_there_is_one) {
  std::shared_ptr<std::byte> memory;
  std::size_t size = 0;
  const auto room = [&](std::size_t n) {
    memory = parts_memory(n);
    size = n;
    return std::span(memory.get(), n);
  };
  troupe::encode_parts(room, 1, troupe::Array<float>(std::vector<float>(1000, 2.5f)));
  const troupe::BlobView bytes(memory.get(), size);
  const std::weak_ptr<std::byte> alive = memory;

  int first = 0;
  troupe::Array<float> copied, shown;
  troupe::PartReader without(bytes);
  without.read(first);
  without.read(copied);
  const auto inside = [&](const float* p) {
    const auto* at = reinterpret_cast<const std::byte*>(p);
    return at >= bytes.data() && at < bytes.data() + bytes.size();
  };
  EXPECT_FALSE(inside(copied.data()));
  {
    troupe::PartReader with(bytes, std::move(memory));
    with.read(first);
    with.read(shown);
  }
  ASSERT_FALSE(alive.expired());
  EXPECT_TRUE(inside(shown.data()));
  EXPECT_EQ(shown[999], 2.5f);
  shown = {};
  EXPECT_TRUE(alive.expired());
}

}  // namespace

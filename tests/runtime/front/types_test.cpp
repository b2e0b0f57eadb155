/// Tests which types may cross to another process: alone, inside an aggregate, and inside a
/// vector of aggregates. The test passes when this file compiles.
#include "troupe/runtime/codec.hpp"
#include "troupe/runtime/context.hpp"

#include <gtest/gtest.h>
#include <any>
#include <atomic>
#include <bitset>
#include <complex>
#include <deque>
#include <filesystem>
#include <forward_list>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <queue>
#include <random>
#include <thread>
#include <unordered_map>

namespace {

template <class T>
struct In {
  int before;
  T member;
  std::vector<int> after;
};
struct Polymorphic {
  virtual ~Polymorphic() = default;
  int x;
};
template <class... T>
constexpr bool cross =
    ((troupe::can_cross<T> && troupe::can_cross<In<T>> && troupe::can_cross<std::vector<In<T>>>) &&
     ...);
template <class... T>
constexpr bool none_crosses = ((!troupe::can_cross<T> && !troupe::can_cross<In<T>> &&
                                !troupe::can_cross<std::vector<In<T>>>) &&
                               ...);

static_assert(
    cross<bool, wchar_t, long double, std::byte, std::string, std::u8string, std::complex<double>>);
static_assert(
    cross<std::vector<std::list<int>>, std::deque<bool>, std::optional<std::optional<int>>,
          std::variant<int, std::string>, std::unique_ptr<int>, std::vector<std::unique_ptr<int>>,
          std::unordered_map<std::string, std::vector<bool>>, std::array<std::string, 3>,
          std::tuple<int, std::string>, std::chrono::steady_clock::time_point>);
static_assert(cross<troupe::Ref<int>, troupe::Ref<void>, troupe::AnyRef, troupe::Actor<Polymorphic>,
                    troupe::Array<float>, troupe::NodeId, In<In<int>>>);

static_assert(none_crosses<int*, void (*)(), int Polymorphic::*, std::nullptr_t, std::string_view,
                           std::span<int>, std::vector<int>::iterator, std::initializer_list<int>,
                           std::reference_wrapper<int>>);
static_assert(none_crosses<std::variant<int, int*>, std::optional<std::string_view>,
                           std::map<int, const char*>, std::pair<const int, int>,
                           std::unique_ptr<int[]>, std::unique_ptr<Polymorphic>>);
static_assert(none_crosses<std::shared_ptr<int>, std::weak_ptr<int>, std::function<int()>, std::any,
                           Polymorphic, std::exception_ptr, std::coroutine_handle<>, std::thread,
                           std::mutex, std::atomic<int>, std::ifstream, std::filesystem::path,
                           std::mt19937, std::bitset<8>, std::forward_list<int>, std::queue<int>>);

TEST(Types, are_judged_at_compile_time) {
  SUCCEED();
}

}  // namespace

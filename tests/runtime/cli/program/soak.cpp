#include "soak.hpp"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace soak {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::Context;
using troupe::Ref;
using Bytes = std::vector<unsigned char>;

constexpr auto kBound = 30s;
constexpr std::size_t kMost = 80;  // objects at once: more than the driver's node has memory for

Bytes made(std::size_t n, unsigned seed) {
  Bytes bytes(n);
  std::uint32_t x = seed * 2654435761u + 1;
  for (unsigned char& byte : bytes)
    byte = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  return bytes;
}
Bytes mixed(const Bytes& a, const Bytes& b) {
  Bytes bytes = a;
  for (std::size_t i = 0; i < bytes.size() && !b.empty(); ++i) bytes[i] ^= b[i % b.size()];
  return bytes;
}
std::uint64_t sum_of(const Bytes& bytes) {
  std::uint64_t sum = bytes.size();
  for (const unsigned char byte : bytes) sum = sum * 31 + byte;
  return sum;
}
int process_id() {
  return ::getpid();
}

struct Crate {
  std::vector<Ref<Bytes>> refs;
};
std::uint64_t sum_of_crate(Context& ctx, const Crate& crate) {
  std::uint64_t sum = 0;
  for (const auto& ref : crate.refs) sum = sum * 7 + sum_of(ctx.get(ref, kBound));
  return sum;
}
/// Returns the refs that it was given, one of an object that it puts, and one of a task's result.
Crate packed(Context& ctx, const Crate& given, std::size_t n, unsigned seed) {
  Crate crate = given;
  crate.refs.push_back(ctx.put(made(n, seed)));
  crate.refs.push_back(ctx.submit<made>(n + 1, seed));
  ctx.wait({crate.refs.back()}, {.timeout = kBound});
  return crate;
}

/// An actor that keeps refs until `take` or its end.
struct Shelf {
  std::vector<Ref<Bytes>> held;
  std::size_t keep(const Crate& crate) {
    held.insert(held.end(), crate.refs.begin(), crate.refs.end());
    return held.size();
  }
  Crate take() { return {std::exchange(held, {})}; }
  int pid() const { return ::getpid(); }
};

struct Item {
  Ref<Bytes> ref;
  Bytes bytes;
};

class Load {
 public:
  Load(Context& ctx, unsigned seed) : ctx_(ctx), random_(seed) {}

  bool step() {
    ++steps;
    while (items_.size() > kMost) drop();
    switch (random_() % 20) {
      case 0:
      case 1:
      case 2: {
        const auto [n, seed] = next();
        Bytes bytes = made(n, seed);
        auto ref = ctx_.put(bytes);
        return keep({std::move(ref), std::move(bytes)});
      }
      case 3:
      case 4:
      case 5: {
        const auto [n, seed] = next();
        return keep({ctx_.submit<made>(n, seed), made(n, seed)});
      }
      case 6:
      case 7:
      case 8: return items_.empty() || mix();
      case 9:
      case 10: return items_.empty() || same(ctx_.get(any().ref, kBound), any_.bytes);
      case 11:
      case 12: return sum_some();
      case 13:
      case 14: return pack();
      case 15: return shelve();
      case 16: return unshelve();
      case 17:
        for (auto n = random_() % 6; n > 0; --n) drop();
        return true;
      case 18: return steps % 4 != 0 || kill_worker();
      default: return steps % 8 != 0 || kill_shelf();
    }
  }
  void let_go() {
    items_.clear();
    any_ = {};
    shelf_.reset();
    on_shelf_.clear();
  }
  std::uint64_t steps = 0, kills = 0;

 private:
  std::pair<std::size_t, unsigned> next() {
    const auto seed = static_cast<unsigned>(random_());
    return {random_() % 3 == 0 ? random_() % 4'000 : 5'000 + random_() % 400'000, seed};
  }
  const Item& any() { return any_ = items_[random_() % items_.size()]; }
  bool keep(Item item) {
    items_.push_back(std::move(item));
    return true;
  }
  void drop() {
    if (items_.empty()) return;
    std::swap(items_[random_() % items_.size()], items_.back());
    items_.pop_back();
  }
  static bool same(const Bytes& got, const Bytes& want) {
    if (got == want) return true;
    std::cerr << "a value of " << want.size() << " bytes is another\n";
    return false;
  }
  bool mix() {
    const Item a = any(), b = any();
    return keep({ctx_.submit<mixed>(a.ref, b.ref), mixed(a.bytes, b.bytes)});
  }
  Crate crate_of(std::size_t count, std::vector<Bytes>& bytes) {
    Crate crate;
    for (; count > 0 && !items_.empty(); --count) {
      crate.refs.push_back(any().ref);
      bytes.push_back(any_.bytes);
    }
    return crate;
  }
  bool sum_some() {
    std::vector<Bytes> bytes;
    const Crate crate = crate_of(3, bytes);
    std::uint64_t want = 0;
    for (const Bytes& one : bytes) want = want * 7 + sum_of(one);
    const bool right = ctx_.get(ctx_.submit<sum_of_crate>(crate), kBound) == want;
    if (!right) std::cerr << "a sum is wrong\n";
    return right;
  }
  struct Packing {
    Ref<Crate> crate;
    std::vector<Bytes> bytes;
  };
  Packing begin_packing() {
    std::vector<Bytes> bytes;
    const Crate given = crate_of(2, bytes);
    const auto [n, seed] = next();
    bytes.push_back(made(n, seed));
    bytes.push_back(made(n + 1, seed));
    return {ctx_.submit<packed>(given, n, seed), std::move(bytes)};
  }
  bool finish(const Packing& packing) {
    const Crate crate = ctx_.get(packing.crate, kBound);
    for (std::size_t i = 0; i < packing.bytes.size(); ++i)
      keep({crate.refs.at(i), packing.bytes[i]});
    return true;
  }
  bool pack() { return finish(begin_packing()); }
  bool shelve() {
    if (!shelf_) shelf_ = ctx_.spawn<Shelf>();
    std::vector<Bytes> bytes;
    const Crate crate = crate_of(4, bytes);
    on_shelf_.insert(on_shelf_.end(), bytes.begin(), bytes.end());
    if (on_shelf_.size() > 24) return unshelve();
    return ctx_.get(shelf_->call<&Shelf::keep>(crate), kBound) == on_shelf_.size();
  }
  bool unshelve() {
    if (!shelf_) return true;
    const Crate crate = ctx_.get(shelf_->call<&Shelf::take>(), kBound);
    const std::vector<Bytes> bytes = std::exchange(on_shelf_, {});
    for (std::size_t i = 0; i < crate.refs.size(); ++i)
      if (!same(ctx_.get(crate.refs[i], kBound), bytes.at(i))) return false;
    return true;
  }
  /// Kills a worker while it may have work, or is about to answer.
  bool kill_worker() {
    for (int i = 0; i < 4 && !items_.empty(); ++i) mix();
    const int pid = ctx_.get(ctx_.submit<process_id>(), kBound);
    std::vector<Packing> packing;
    for (int i = 0; i < 3; ++i) packing.push_back(begin_packing());
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 4'000));
    kills += ::kill(pid, SIGKILL) == 0 ? 1 : 0;
    return std::all_of(packing.begin(), packing.end(),
                       [this](const Packing& one) { return finish(one); });
  }
  bool kill_shelf() {
    if (!shelf_) return true;
    kills += ::kill(ctx_.get(shelf_->call<&Shelf::pid>(), kBound), SIGKILL) == 0 ? 1 : 0;
    shelf_.reset();
    on_shelf_.clear();
    return true;
  }

  Context& ctx_;
  std::mt19937 random_;
  std::vector<Item> items_;
  Item any_;
  std::optional<Actor<Shelf>> shelf_;
  std::vector<Bytes> on_shelf_;
};

}  // namespace

int run(Context& ctx, unsigned seed, double seconds) {
  Load load(ctx, seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool right = true;
  while (right && std::chrono::steady_clock::now() < end) right = load.step();
  load.let_go();
  std::cout << (right ? "idle after " : "wrong after ") << load.steps << " steps and " << load.kills
            << " kills" << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return right ? 0 : 1;
}

}  // namespace soak

// Proves objects: put, get, views, builders, refs inside values, names, replicas, and memory that
// comes back.
#include "tests/programs/program.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace objects {
namespace {

using namespace std::chrono_literals;
using namespace troupe::literals;
using programs::Program;
using troupe::Array;
using troupe::Context;
using troupe::Ref;
using troupe::Tensor;

std::vector<double> numbers(std::size_t n) {
  std::vector<double> all(n);
  std::iota(all.begin(), all.end(), 0.0);
  return all;
}
double sum(std::span<const double> all) {
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// --- put, get, view, create ---

void large(Context& ctx) {
  const Ref<std::vector<double>> made = ctx.submit<numbers>(1'000'000);
  const Ref<std::vector<double>> put = ctx.put(numbers(1'000'000));
  std::cout << (ctx.get(made) == ctx.get(put)) << std::endl;
  for (int i = 0; i < 20; ++i) {
    const auto shown = ctx.view(i % 2 == 0 ? made : put);
    if (shown[999'999] != 999'999 || shown.size() != 1'000'000) std::cout << "wrong\n";
    if (ctx.get(ctx.submit<sum>(made)) != ctx.get(ctx.submit<sum>(put))) std::cout << "wrong\n";
  }
  auto room = ctx.create<double>(1'000'000);
  std::fill(room.begin(), room.end(), 0.5);
  const Ref<Array<double>> filled = std::move(room).seal();
  std::cout << static_cast<long>(ctx.get(ctx.submit<sum>(filled))) << '\n';
}
/// Proves that large values are equal whether a task, put or a builder makes them.
const Program larges{"large_values", {.expect = "1\n500000\n", .everywhere = true}, large};

void views(Context& ctx) {
  const Ref<std::string> text = ctx.put(std::string("shown in place"));
  std::cout << *ctx.view(text) << ' ' << ctx.view(text).size() << '\n';
  const Ref<std::vector<int>> some = ctx.put(std::vector<int>{1, 2, 3});
  int total = 0;
  for (const int x : *ctx.view(some)) total += x;
  for (const int x : ctx.view(some)) total += x;
  std::cout << total << '\n';
  const Ref<std::map<std::string, int>> map = ctx.put(std::map<std::string, int>{{"a", 1}});
  std::cout << ctx.view(map)->at("a") << '\n';
  // A view keeps its value after the Ref is gone.
  Ref<std::vector<double>> gone = ctx.submit<numbers>(100'000);
  const auto kept = ctx.view(gone);
  const Array<double> shared = ctx.get(ctx.put(Array<double>(numbers(100'000))));
  gone = {};
  for (int i = 0; i < 50; ++i) ctx.put(numbers(100'000));
  std::cout << kept[99'999] << ' ' << shared[99'999] << '\n';
}
/// Proves that views show values of all kinds in place and keep them after the Ref is gone.
const Program view{"views", {.expect = "shown in place 14\n12\n1\n99999 99999\n"}, views};

void builders(Context& ctx) {
  auto none = ctx.create<int>(0);
  std::cout << ctx.get(none.seal()).size();
  try {
    none.seal();
  } catch (const troupe::InvalidArgument&) {
    std::cout << " sealed once";
  }
  try {
    ctx.create<double>(std::size_t{1} << 61);
  } catch (const troupe::Error&) {
    std::cout << " too large";
  }
  for (int i = 0; i < 200; ++i) {  // dropped builders return their memory
    auto dropped = ctx.create<double>(1'000'000);
    dropped[0] = 1;
  }
  auto moved = ctx.create<int>(3);
  auto to = std::move(moved);
  std::iota(to.begin(), to.end(), 1);
  const auto array = ctx.get(to.seal());
  std::cout << ' ' << array[0] << array[1] << array[2] << '\n';
}
/// Proves that a builder seals once, refuses impossible sizes, and returns its memory when it is
/// dropped.
const Program builder{"builders", {.expect = "0 sealed once too large 123\n"}, builders};

// --- arrays and tensors inside values ---

struct Batch {
  Tensor<float> images;
  Array<int> labels;
  std::string name;
};
Batch batch(std::uint64_t n) {
  Batch made{Tensor<float>({n, 2, 2}, std::vector<float>(n * 4, 0.25f)), std::vector<int>(n, 7),
             "batch"};
  return made;
}
double weigh(const Batch& b) {
  double sum = 0;
  for (const float x : b.images) sum += static_cast<double>(x);
  return sum + b.labels[b.labels.size() - 1];
}
Tensor<float> third(const Batch& b) {
  return b.images[2];
}
void tensors(Context& ctx) {
  const auto made = ctx.submit<batch>(100'000);
  const auto part = ctx.get(ctx.submit<third>(made));
  std::cout << ctx.get(ctx.submit<weigh>(made)) << ' ' << part.rank() << ' ' << part(1, 1) << ' '
            << part.reshaped({4}).shape()[0] << '\n';
  try {
    part.reshaped({5});
  } catch (const troupe::InvalidArgument&) {
    std::cout << "not five\n";
  }
}
/// Proves that tensors and arrays travel as members of a struct, and that slices and shapes work.
const Program tensor{"tensors_in_values", {.expect = "100007 2 0.25 4\nnot five\n"}, tensors};

// --- handles inside values ---

struct Node {
  int value = 0;
  std::optional<Ref<int>> extra;
  std::vector<Ref<Node>> children;
};
int total(Context& ctx, const Node& node) {
  int sum = node.value + (node.extra ? ctx.get(*node.extra) : 0);
  for (const auto& child : node.children) sum += ctx.get(ctx.submit<total>(child));
  return sum;
}
Ref<Node> grown(Context& ctx, int depth) {
  Node node{1, ctx.put(10), {}};
  for (int i = 0; i < 2 && depth > 0; ++i) node.children.push_back(grown(ctx, depth - 1));
  return ctx.put(node);
}
Ref<Node> grow(Context& ctx, int depth) {
  return grown(ctx, depth);
}
std::size_t how_many(const std::vector<Ref<int>>& refs) {
  return refs.size();
}
void nested(Context& ctx) {
  std::cout << ctx.get(ctx.submit<total>(ctx.submit<grow>(3))) << '\n';
  const Ref<Ref<int>> twice = ctx.put(ctx.put(5));
  std::cout << ctx.get(ctx.get(twice)) << '\n';
  // More refs than one value can carry without bundles.
  std::vector<Ref<int>> many;
  for (int i = 0; i < 2000; ++i) many.push_back(ctx.put(i));
  std::cout << ctx.get(ctx.submit<how_many>(many)) << ' ' << ctx.get(ctx.get(ctx.put(many))[1999])
            << '\n';
}
/// Proves that values may carry refs, nested and in great numbers.
const Program nest{"refs_inside_values", {.expect = "165\n5\n2000 1999\n", .seconds = 20}, nested};

// --- many small values, and more than fits into memory at once ---

void churn(Context& ctx) {
  long sum = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<Ref<int>> refs;
    for (int i = 0; i < 10'000; ++i) refs.push_back(ctx.put(i));
    sum += ctx.get(refs[9999]);
  }
  std::cout << sum << '\n';
  for (int i = 0; i < 100; ++i) ctx.put(std::vector<char>(8 << 20));  // 800 MB in all
  std::cout << "done\n";
}
/// Proves that memory of dropped values is used again.
const Program churns{"values_come_and_go", {.expect = "99990\ndone\n", .seconds = 20}, churn};

// --- names ---

void names(Context& ctx) {
  const Ref<std::string> text = ctx.put(std::string("weights"));
  ctx.detach(text, "model");
  ctx.detach(text, "model");  // the second call changes nothing
  ctx.detach(text, "also");
  std::cout << ctx.get(*ctx.find_object<std::string>("model"))
            << ctx.find_object<std::string>("nobody").has_value();
  try {
    ctx.find_object<int>("model");
  } catch (const troupe::InvalidArgument&) {
    std::cout << " no int";
  }
  try {
    ctx.detach(ctx.put(std::string("other")), "model");
  } catch (const troupe::InvalidArgument&) {
    std::cout << " taken";
  }
  try {
    ctx.detach(text, "");
  } catch (const troupe::InvalidArgument&) {
    std::cout << " nameless";
  }
  std::cout << ' ' << ctx.forget_object("model") << ctx.forget_object("model") << ' '
            << ctx.get(*ctx.find_object<std::string>("also")) << '\n';
}
/// Proves names of objects: they are found, typed, unique, and can be forgotten.
const Program named{
    "named_objects", {.expect = "weights0 no int taken nameless 10 weights\n"}, names};

void places(Context& ctx) {
  const Ref<int> small = ctx.put(1);
  const auto big = ctx.submit<numbers>(100'000);
  ctx.wait({big});
  using State = troupe::ObjectLocation::State;
  const auto where =
      ctx.locations(std::vector<troupe::AnyRef>{troupe::AnyRef(small), troupe::AnyRef(big)});
  std::cout << (where[0].state == State::small) << (where[1].state == State::large)
            << (where[1].size.count >= 800'000) << where[1].nodes.size()
            << ctx.locations(std::vector<Ref<int>>{}).size() << '\n';
}
/// Proves that locations() tells small values from large ones, with their nodes and sizes.
const Program located{"locations", {.expect = "11110\n"}, places};

// --- copies on several nodes ---

void replicas(Context& ctx) {
  const auto safe = ctx.put(numbers(10'000), {.replicas = 3});
  const auto where = ctx.locations(std::vector{safe});
  std::cout << where[0].nodes.size() << ' ' << ctx.get(ctx.submit<sum>(safe));
  try {
    ctx.put(1, {.replicas = 4});
  } catch (const troupe::Infeasible&) {
    std::cout << " not four";
  }
  try {
    ctx.put(1, {.replicas = 0});
  } catch (const troupe::InvalidArgument&) {
    std::cout << " not none";
  }
  std::cout << '\n';
}
/// Proves that a put with replicas lies on three nodes, and that impossible numbers are refused.
const Program replica{
    "replicas", {.expect = "3 4.9995e+07 not four not none\n", .nodes = 3}, replicas};
void alone(Context& ctx) {
  try {
    ctx.put(1, {.replicas = 2});
  } catch (const troupe::Infeasible&) {
    std::cout << "one node cannot hold two copies\n";
  }
}
/// Proves that one node refuses to hold two replicas.
const Program replica_alone{
    "replicas_of_one_node", {.expect = "one node cannot hold two copies\n", .nodes = 1}, alone};

// --- handles that are left over ---

Ref<int> g_left;
int plus_one(int x) {
  return x + 1;
}
int outlive(int& argc, char** argv) {
  const int first = troupe::run(argc, argv, [](Context& ctx) {
    g_left = ctx.put(3);
    std::cout << ctx.get(ctx.submit<plus_one>(g_left));
  });
  const int second = troupe::run(argc, argv, [](Context& ctx) {
    try {
      ctx.submit<plus_one>(g_left);
    } catch (const troupe::Error& e) {
      std::cout << ' ' << troupe::name_of(e.code());
    }
    g_left = ctx.put(4);
    std::cout << ' ' << ctx.get(ctx.submit<plus_one>(g_left)) << '\n';
  });
  return first != 0 ? first : second;
}
/// Proves that a Ref of an ended session is refused, and can be assigned a new value.
const Program left{"a_ref_outlives_its_session", {.expect = "4 invalid_argument 5\n"}, outlive};

}  // namespace
}  // namespace objects

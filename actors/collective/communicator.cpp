#include "troupe/actors/collective/communicator.hpp"

namespace troupe::collective {
namespace {

using Kind = Operation::Kind;
using Type = Operation::Type;

void require(bool condition, const char* message) {
  if (!condition) throw InvalidArgument(Code::invalid_argument, message);
}

}  // namespace

Communicator::Communicator(int rank, int size, Duration timeout) : rank_(rank), size_(size) {
  set_timeout(timeout);
}

Communicator::~Communicator() = default;

void Communicator::set_timeout(Duration timeout) {
  require(timeout > Duration::zero(),
          "a group's timeout must be positive; troupe::forever sets no limit");
  timeout_ = timeout;
}

void Communicator::allreduce(std::span<float> data, Reduce reduce) {
  run({Kind::allreduce, Type::f32, reduce, 0, data.data(), data.data(), data.size()});
}

void Communicator::allreduce(std::span<double> data, Reduce reduce) {
  run({Kind::allreduce, Type::f64, reduce, 0, data.data(), data.data(), data.size()});
}

void Communicator::allreduce(std::span<std::int64_t> data) {
  run({Kind::allreduce, Type::i64, Reduce::sum, 0, data.data(), data.data(), data.size()});
}

void Communicator::reduce_scatter(std::span<const float> in, std::span<float> out, Reduce reduce) {
  require(in.size() == out.size() * static_cast<std::size_t>(size_),
          "reduce_scatter: in must have size() parts as long as out");
  run({Kind::reduce_scatter, Type::f32, reduce, 0, in.data(), out.data(), out.size()});
}

void Communicator::run_gather(Type type, const void* in, void* out, std::size_t in_count,
                              std::size_t out_count) {
  require(out_count == in_count * static_cast<std::size_t>(size_),
          "all_gather: out must be size() times as long as in");
  run({Kind::all_gather, type, Reduce::sum, 0, in, out, in_count});
}

void Communicator::all_gather(std::span<const float> in, std::span<float> out) {
  run_gather(Type::f32, in.data(), out.data(), in.size(), out.size());
}

void Communicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  run_gather(Type::bytes, in.data(), out.data(), in.size(), out.size());
}

void Communicator::broadcast(std::span<std::byte> data, int root) {
  require(root >= 0 && root < size_, "broadcast: root is not a rank of the group");
  run({Kind::broadcast, Type::bytes, Reduce::sum, root, data.data(), data.data(), data.size()});
}

void Communicator::barrier() {
  run({});
}

}  // namespace troupe::collective

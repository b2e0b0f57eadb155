// Attention of operations.hpp: threads divide the key-value heads. One thread has all query heads
// of a group, since they add to the same dk and dv.
#include "troupe/kernels/attention/internal/head.hpp"
#include "troupe/kernels/internal/cpu.hpp"

namespace troupe::kernels::cpu {
namespace {
using internal::of_type;

template <class F>
void for_heads(const Attention& o, std::int64_t first, std::int64_t end, const F& f) {
  const std::int64_t group = o.heads / o.kv_heads;
  for (std::int64_t i = first; i < end; ++i)
    for (std::int64_t j = 0; j < group; ++j) f(i / o.kv_heads, i % o.kv_heads * group + j);
}

/// Returns the fewest groups of heads that are worth another thread.
std::int64_t heads_grain(const Attention& o) {
  const std::int64_t work =
      std::max<std::int64_t>(1, o.time * o.time * o.head_size * (o.heads / o.kv_heads));
  return std::max<std::int64_t>(1, (std::int64_t{1} << 19) / work);
}

}  // namespace

void attention(Queue& queue, const Attention& o) {
  if (o.batch * o.time * o.heads == 0) return;
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.batch * o.kv_heads, heads_grain(o),
                       [&](std::int64_t first, std::int64_t end) {
                         for_heads(o, first, end, [&](std::int64_t b, std::int64_t h) {
                           internal::attend_by_blocks(internal::head_of<T>(o, b, h));
                         });
                       });
  });
}

void attention_backward(Queue& queue, const AttentionBackward& o) {
  const Attention& f = o.forward;
  if (f.batch * f.time * f.heads == 0) return;
  of_type(f.type, [&]<class T>(T) {
    internal::parallel(queue, f.batch * f.kv_heads, heads_grain(f),
                       [&](std::int64_t first, std::int64_t end) {
                         for_heads(f, first, end, [&](std::int64_t b, std::int64_t h) {
                           internal::attend_backward_by_blocks(internal::head_of<T>(o, b, h));
                         });
                       });
  });
}

}  // namespace troupe::kernels::cpu

#include "troupe/kernels/internal/activations.hpp"
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

namespace troupe::kernels::cpu {
namespace {
using internal::grain;
using internal::kDear;
using internal::of_type;
using internal::pointer;

template <Activation activation, class T>
TROUPE_INLINE void values(const T* in, T* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = internal::value<activation>(in[i]);
}

template <class T>
TROUPE_INLINE void all_values(Activation activation, const T* in, T* out, std::int64_t n) {
  switch (activation) {
    case Activation::none: return values<Activation::none>(in, out, n);
    case Activation::relu: return values<Activation::relu>(in, out, n);
    case Activation::gelu: return values<Activation::gelu>(in, out, n);
    case Activation::silu: return values<Activation::silu>(in, out, n);
  }
}
TROUPE_KERNEL void forward(Activation activation, const float* in, float* out, std::int64_t n) {
  all_values(activation, in, out, n);
}
void forward(Activation activation, const double* in, double* out, std::int64_t n) {
  all_values(activation, in, out, n);
}

template <class T>
struct Slopes {
  const T* in;
  const T* dout;
  T* din;
  std::int64_t n;
  bool add;
};
template <Activation activation, class T>
TROUPE_INLINE void gradients(const Slopes<T>& s) {
  const T *in = s.in, *dout = s.dout;
  T* din = s.din;
  if (s.add)
    for (std::int64_t i = 0; i < s.n; ++i) din[i] += internal::gradient<activation>(in[i], dout[i]);
  else
    for (std::int64_t i = 0; i < s.n; ++i) din[i] = internal::gradient<activation>(in[i], dout[i]);
}

template <class T>
TROUPE_INLINE void all_gradients(Activation activation, const Slopes<T>& s) {
  switch (activation) {
    case Activation::none: return gradients<Activation::none>(s);
    case Activation::relu: return gradients<Activation::relu>(s);
    case Activation::gelu: return gradients<Activation::gelu>(s);
    case Activation::silu: return gradients<Activation::silu>(s);
  }
}
TROUPE_KERNEL void backward(Activation activation, const Slopes<float>& s) {
  all_gradients(activation, s);
}
void backward(Activation activation, const Slopes<double>& s) {
  all_gradients(activation, s);
}

template <class T>
TROUPE_INLINE void gated_rows(const GatedSilu& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const T* gate = pointer<T>(o.gate) + r * o.row_in;
    const T* up = pointer<T>(o.up) + r * o.row_in;
    T* __restrict out = pointer<T>(o.out) + r * o.columns;
    for (std::int64_t c = 0; c < o.columns; ++c) out[c] = internal::silu(gate[c]) * up[c];
  }
}
TROUPE_KERNEL void gated(const GatedSilu& o, float, std::int64_t first, std::int64_t end) {
  gated_rows<float>(o, first, end);
}
void gated(const GatedSilu& o, double, std::int64_t first, std::int64_t end) {
  gated_rows<double>(o, first, end);
}

template <class T>
TROUPE_INLINE void gated_gradients(const GatedSilu& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const T* gate = pointer<T>(o.gate) + r * o.row_in;
    const T* up = pointer<T>(o.up) + r * o.row_in;
    const T* dout = pointer<T>(o.dout) + r * o.columns;
    T* __restrict dgate = pointer<T>(o.dgate) + r * o.row_in;
    T* __restrict dup = pointer<T>(o.dup) + r * o.row_in;
    for (std::int64_t c = 0; c < o.columns; ++c) {
      const internal::Sigmoid<T> s = internal::sigmoid(gate[c]);
      dup[c] = dout[c] * (gate[c] * s.value);
      dgate[c] = dout[c] * (up[c] * (s.value * (T(1) + gate[c] * s.rest)));
    }
  }
}
TROUPE_KERNEL void gated_backward(const GatedSilu& o, float, std::int64_t first, std::int64_t end) {
  gated_gradients<float>(o, first, end);
}
void gated_backward(const GatedSilu& o, double, std::int64_t first, std::int64_t end) {
  gated_gradients<double>(o, first, end);
}

}  // namespace

void activate(Queue& queue, const Activate& o) {
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.n, kDear, [&](std::int64_t first, std::int64_t end) {
      forward(o.activation, pointer<T>(o.in) + first, pointer<T>(o.out) + first, end - first);
    });
  });
}

void activate_backward(Queue& queue, const ActivateBackward& o) {
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.n, kDear, [&](std::int64_t first, std::int64_t end) {
      backward(o.activation, Slopes<T>{pointer<T>(o.in) + first, pointer<T>(o.dout) + first,
                                       pointer<T>(o.din) + first, end - first, o.add});
    });
  });
}

void gated_silu(Queue& queue, const GatedSilu& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, grain(o.columns, kDear),
                       [&](std::int64_t first, std::int64_t end) { gated(o, type, first, end); });
  });
}

void gated_silu_backward(Queue& queue, const GatedSilu& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(
        queue, o.rows, grain(o.columns, kDear),
        [&](std::int64_t first, std::int64_t end) { gated_backward(o, type, first, end); });
  });
}

}  // namespace troupe::kernels::cpu

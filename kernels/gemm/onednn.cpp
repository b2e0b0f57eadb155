// The C interface of oneDNN 2, as far as it is used: its headers need not be there to build.
#include "troupe/kernels/gemm/internal/onednn.hpp"

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace troupe::kernels::internal {
namespace {

using Status = int;  // 0: success
using Handle = void*;
using Dims = std::int64_t[12];

// dnnl_memory_desc_t has 696 bytes in 2.6 and dnnl_matmul_desc_t 2,800; the library fills them.
struct alignas(16) MemoryDescription {
  std::byte bytes[4096];
};
struct alignas(16) MatmulDescription {
  std::byte bytes[16384];
};
struct Argument {
  int number;
  Handle memory;
};
struct Version {
  int major, minor, patch;
};
constexpr int kF32 = 3, kCpu = 1, kInOrder = 1;
constexpr int kSource = 1, kDestination = 17, kWeights = 33, kBias = 41;

struct Functions {
  Status (*engine_create)(Handle*, int kind, std::size_t index);
  Status (*stream_create)(Handle*, Handle engine, unsigned flags);
  Status (*stream_destroy)(Handle);
  Status (*memory_desc_init_by_strides)(MemoryDescription*, int, const Dims, int, const Dims);
  Status (*matmul_desc_init)(MatmulDescription*, const MemoryDescription*, const MemoryDescription*,
                             const MemoryDescription*, const MemoryDescription*);
  Status (*primitive_attr_create)(Handle*);
  Status (*primitive_attr_destroy)(Handle);
  Status (*primitive_attr_set_post_ops)(Handle, Handle);
  Status (*post_ops_create)(Handle*);
  Status (*post_ops_destroy)(Handle);
  Status (*post_ops_append_sum)(Handle, float scale);
  Status (*primitive_desc_create)(Handle*, const MatmulDescription*, Handle attributes,
                                  Handle engine, Handle hint);
  Status (*primitive_desc_destroy)(Handle);
  Status (*primitive_create)(Handle*, Handle description);
  Status (*primitive_destroy)(Handle);
  Status (*primitive_execute)(Handle, Handle stream, int, const Argument*);
  Status (*memory_create)(Handle*, const MemoryDescription*, Handle engine, void*);
  Status (*memory_set_data_handle)(Handle, void*);
  Status (*memory_destroy)(Handle);
};
Functions dnnl;
Handle engine = nullptr;

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library) {
#define TROUPE_FIND(name) find(library, "dnnl_" #name, dnnl.name)
  return TROUPE_FIND(engine_create) && TROUPE_FIND(stream_create) && TROUPE_FIND(stream_destroy) &&
         TROUPE_FIND(memory_desc_init_by_strides) && TROUPE_FIND(matmul_desc_init) &&
         TROUPE_FIND(primitive_attr_create) && TROUPE_FIND(primitive_attr_destroy) &&
         TROUPE_FIND(primitive_attr_set_post_ops) && TROUPE_FIND(post_ops_create) &&
         TROUPE_FIND(post_ops_destroy) && TROUPE_FIND(post_ops_append_sum) &&
         TROUPE_FIND(primitive_desc_create) && TROUPE_FIND(primitive_desc_destroy) &&
         TROUPE_FIND(primitive_create) && TROUPE_FIND(primitive_destroy) &&
         TROUPE_FIND(primitive_execute) && TROUPE_FIND(memory_create) &&
         TROUPE_FIND(memory_set_data_handle) && TROUPE_FIND(memory_destroy);
#undef TROUPE_FIND
}

/// A handle of the library, destroyed with its owner.
class Owned {
 public:
  Owned() = default;
  explicit Owned(Status (*destroy)(Handle)) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  Status (*destroy_)(Handle) = nullptr;
};

/// What a primitive depends on; no padding, so that its bytes are its value.
struct Key {
  std::int64_t m, n, k, lda, ldb, ldc;
  float beta;
  bool transposed, bias;
  std::uint16_t none = 0;
  explicit Key(const Matmul& x)
      : m(x.m),
        n(x.n),
        k(x.k),
        lda(x.lda),
        ldb(x.ldb),
        ldc(x.ldc),
        beta(x.beta),
        transposed(x.b_op == Op::transpose),
        bias(x.bias != nullptr) {}
  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(sizeof(Key) == 56);
struct HashKey {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&key), sizeof key});
  }
};

/// A compiled product and the memory objects of its last call.
class Primitive {
 public:
  /// Whether the library could make it.
  bool make(const Key& key);
  bool run(Handle stream, const Matmul& x);

 private:
  bool make_primitive(const Key& key, const MatmulDescription& description);
  Owned primitive_{dnnl.primitive_destroy}, a_{dnnl.memory_destroy}, b_{dnnl.memory_destroy},
      c_{dnnl.memory_destroy}, bias_{dnnl.memory_destroy};
};

bool describe(MemoryDescription& to, std::int64_t rows, std::int64_t columns, std::int64_t row,
              std::int64_t column) {
  const Dims sizes = {rows, columns}, strides = {row, column};
  return dnnl.memory_desc_init_by_strides(&to, 2, sizes, kF32, strides) == 0;
}

bool Primitive::make(const Key& key) {
  auto descriptions = std::make_unique<MemoryDescription[]>(4);
  auto matmul = std::make_unique<MatmulDescription>();
  MemoryDescription &a = descriptions[0], &b = descriptions[1], &c = descriptions[2],
                    &bias = descriptions[3];
  return describe(a, key.m, key.k, key.lda, 1) &&
         describe(b, key.k, key.n, key.transposed ? 1 : key.ldb, key.transposed ? key.ldb : 1) &&
         describe(c, key.m, key.n, key.ldc, 1) && describe(bias, 1, key.n, key.n, 1) &&
         dnnl.matmul_desc_init(matmul.get(), &a, &b, key.bias ? &bias : nullptr, &c) == 0 &&
         make_primitive(key, *matmul) && dnnl.memory_create(a_.out(), &a, engine, nullptr) == 0 &&
         dnnl.memory_create(b_.out(), &b, engine, nullptr) == 0 &&
         dnnl.memory_create(c_.out(), &c, engine, nullptr) == 0 &&
         dnnl.memory_create(bias_.out(), &bias, engine, nullptr) == 0;
}

bool Primitive::make_primitive(const Key& key, const MatmulDescription& description) {
  Owned attributes(dnnl.primitive_attr_destroy), after(dnnl.post_ops_destroy),
      chosen(dnnl.primitive_desc_destroy);
  if (dnnl.primitive_attr_create(attributes.out()) != 0 || dnnl.post_ops_create(after.out()) != 0)
    return false;
  if (key.beta != 0 && dnnl.post_ops_append_sum(after.get(), key.beta) != 0) return false;
  return dnnl.primitive_attr_set_post_ops(attributes.get(), after.get()) == 0 &&
         dnnl.primitive_desc_create(chosen.out(), &description, attributes.get(), engine,
                                    nullptr) == 0 &&
         dnnl.primitive_create(primitive_.out(), chosen.get()) == 0;
}

bool Primitive::run(Handle stream, const Matmul& x) {
  const auto set = [](const Owned& memory, const float* data) {
    return dnnl.memory_set_data_handle(memory.get(), const_cast<float*>(data)) == 0;
  };
  const Argument arguments[] = {
      {kSource, a_.get()}, {kWeights, b_.get()}, {kDestination, c_.get()}, {kBias, bias_.get()}};
  return set(a_, x.a) && set(b_, x.b) && set(c_, x.c) && set(bias_, x.bias) &&
         dnnl.primitive_execute(primitive_.get(), stream, x.bias == nullptr ? 3 : 4, arguments) ==
             0;
}

/// Each thread's own: a primitive may only run where it was made.
class Primitives {
 public:
  Primitives() { dnnl.stream_create(stream_.out(), engine, kInOrder); }
  bool run(const Matmul& x);

 private:
  Owned stream_{dnnl.stream_destroy};
  std::unordered_map<Key, std::unique_ptr<Primitive>, HashKey> kept_;  // null: cannot be made
};

bool Primitives::run(const Matmul& x) {
  const Key key(x);
  auto found = kept_.find(key);
  if (found == kept_.end()) {
    if (kept_.size() == kKept) kept_.clear();
    auto primitive = std::make_unique<Primitive>();
    if (stream_.get() == nullptr || !primitive->make(key)) primitive.reset();
    found = kept_.emplace(key, std::move(primitive)).first;
  }
  return found->second != nullptr && found->second->run(stream_.get(), x);
}

}  // namespace

bool open_onednn_matmul(void* library) {
  const Version* (*version)() = nullptr;
  return engine != nullptr || (find(library, "dnnl_version", version) && version()->major == 2 &&
                               find_all(library) && dnnl.engine_create(&engine, kCpu, 0) == 0);
}

bool onednn_matmul(const Matmul& x) {
  // A model that generates text has a new number of rows for each character, and each would have to
  // be compiled: batches mostly have a multiple of 16.
  if (engine == nullptr || x.m % 16 != 0 || x.n < 2 || x.k < 2) return false;
  thread_local Primitives primitives;
  return primitives.run(x);
}

}  // namespace troupe::kernels::internal

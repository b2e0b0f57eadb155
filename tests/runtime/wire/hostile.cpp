#include "tests/runtime/wire/hostile.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t allocated = 0;
}

#ifndef TROUPE_SANITIZED
void* operator new(std::size_t size) {
  allocated += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
#endif

std::size_t troupe::wire::samples::allocated_bytes() noexcept {
  return allocated;
}

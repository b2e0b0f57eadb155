// Read by sanitizers at start-up; see tests/CMakeLists.txt.
#define READ_BY_SANITIZERS __attribute__((visibility("default")))

extern "C" READ_BY_SANITIZERS const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:allocator_may_return_null=1";
}
extern "C" READ_BY_SANITIZERS const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

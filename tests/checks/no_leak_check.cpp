// Read by AddressSanitizer at start-up; see tests/CMakeLists.txt.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}

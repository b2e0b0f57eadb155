// A library that crashes at known lines; stack_lines_test.cpp counts them.
namespace sample {
namespace {

__attribute__((noinline)) void fall(volatile int* place) {
  *place = 1;  // line 6
}

}  // namespace

__attribute__((noinline)) void walk(volatile int* place) {
  fall(place);  // line 12
  *place = 2;
}

}  // namespace sample

extern "C" __attribute__((visibility("default"))) void sample_crash() {
  sample::walk(nullptr);  // line 19
}

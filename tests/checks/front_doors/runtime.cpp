#include <iostream>
// EXAMPLE troupe/runtime/runtime.hpp

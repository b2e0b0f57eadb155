#include "troupe/runtime/detail/wire.hpp"

namespace troupe::detail {

void throw_malformed(const char* what) {
  throw InvalidArgument(Code::invalid_argument,
                        std::string("these bytes are not a value of the expected type: ") + what,
                        Outcome::not_executed);
}

void throw_not_encodable(const char* what) {
  throw_invalid_argument(what);
}

void throw_empty_handle(const char* what) {
  throw_invalid_argument(what);
}

void throw_invalid_argument(const char* what) {
  throw InvalidArgument(Code::invalid_argument, what, Outcome::not_executed);
}

}  // namespace troupe::detail

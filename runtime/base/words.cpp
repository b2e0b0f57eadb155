#include "troupe/runtime/base/words.hpp"

#include "troupe/runtime/base/error.hpp"

#include <cxxabi.h>
#include <exception>
#include <typeinfo>

namespace troupe {

std::string words_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    const char* words = error.what();  // user code, which may return null
    if (words != nullptr && *words != '\0') return words;
    return "an exception of type " + readable_type(typeid(error).name()) + " without a message";
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return "an exception of type " + (type != nullptr ? readable_type(type->name()) : "unknown");
  }
}

}  // namespace troupe

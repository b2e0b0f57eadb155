# Build type, warnings, sanitizers, the compiler cache: everything that is a flag.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)   # another libtroupe.so is no reason to link its programs again
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

option(TROUPE_BUILD_TESTS "build tests and benches" ON)
option(TROUPE_BUILD_EXAMPLES "build examples" ON)
option(TROUPE_WERROR "warnings are errors" OFF)
set(TROUPE_SUBSET "" CACHE STRING "compute: collectives, kernels and the training core alone, without the runtime; empty: all")
if(NOT TROUPE_SUBSET STREQUAL "" AND NOT TROUPE_SUBSET STREQUAL "compute")
  message(FATAL_ERROR "TROUPE_SUBSET is 'compute' or empty, not '${TROUPE_SUBSET}'")
endif()
set(TROUPE_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")

set(TROUPE_PRECOMPILE "" CACHE STRING "what parses the standard library once (a missing #include goes unnoticed): tests, rooms, all, or empty")

set(TROUPE_UNITY "" CACHE STRING "how many units are compiled as one, in a build that is made once; empty: each alone")
set(TROUPE_UNITY_OF all CACHE STRING "which units TROUPE_UNITY is about: all, or tests")
if(TROUPE_UNITY)   # batches.cmake forms the batches
  set(CMAKE_UNITY_BUILD_BATCH_SIZE ${TROUPE_UNITY})
  if(TROUPE_UNITY_OF STREQUAL "all")
    set(CMAKE_UNITY_BUILD ON)
  endif()
endif()

# Every compiler is started by a script that uses ccache where it can. A folder decides once whether it has a cache, so that
# nothing is compiled anew when ccache comes or goes.
option(TROUPE_COMPILER_CACHE "compile through ccache, where it is installed" ON)
set(TROUPE_LAUNCHER "")
if(TROUPE_COMPILER_CACHE)
  set(TROUPE_LAUNCHER ${CMAKE_SOURCE_DIR}/runtime/cmake/cached.sh)
  foreach(language C CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${TROUPE_LAUNCHER})
    endif()
  endforeach()
endif()

add_library(troupe_flags INTERFACE)
target_compile_options(troupe_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A false positive inside libstdc++ 12 (GCC bug 105329).
  target_compile_options(troupe_flags INTERFACE -Wno-restrict)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    # Another false positive, inside the std::variant of libstdc++ 13.
    target_compile_options(troupe_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(TROUPE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In a unity build g++ takes a .cpp file's internal names for those of a header.
  target_compile_options(troupe_flags INTERFACE -Wno-subobject-linkage)
endif()
if(TROUPE_WERROR)
  target_compile_options(troupe_flags INTERFACE -Werror)
endif()
if(TROUPE_SANITIZE STREQUAL "address")
  # Without null, vptr and object-size the build takes far less time and memory. -g1 is enough for stack traces.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,vptr,object-size
                      -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(TROUPE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=thread)
elseif(NOT TROUPE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TROUPE_SANITIZE is 'address', 'thread' or empty, not '${TROUPE_SANITIZE}'")
endif()

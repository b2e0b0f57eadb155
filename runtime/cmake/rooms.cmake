# Makes includes read "troupe/<room>/x.hpp" in the tree as in an installation, through a folder of symbolic links.
set(TROUPE_INCLUDE ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${TROUPE_INCLUDE}/troupe)
foreach(room runtime objectstore actors kernels train tune)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${room} ${TROUPE_INCLUDE}/troupe/${room} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/runtime/troupe.hpp ${TROUPE_INCLUDE}/troupe/troupe.hpp SYMBOLIC)

# troupe_precompile(target tests|rooms): parses the standard library once instead of once per unit. The rooms are compiled
# without it in the builds that look for a missing #include.
function(troupe_precompile name kind)
  if(NOT TROUPE_PRECOMPILE STREQUAL "all" AND NOT TROUPE_PRECOMPILE STREQUAL kind)
    return()
  endif()
  set(owner troupe_precompiled_${kind})
  if(NOT TARGET ${owner})
    set(headers <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <functional> <map>
                <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <unordered_map> <utility>
                <variant> <vector>)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${owner}.cpp CONTENT "int main() {}\n")
    if(kind STREQUAL "tests")  # an executable, so that its code is position-independent in the same way as the tests' code
      add_executable(${owner} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${owner}.cpp)
      target_link_libraries(${owner} PRIVATE GTest::gtest)
      list(APPEND headers <iostream> <random> <sstream> <gtest/gtest.h>)
    else()
      add_library(${owner} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${owner}.cpp)
    endif()
    target_link_libraries(${owner} PRIVATE troupe_flags)
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${name} REUSE_FROM ${owner})
endfunction()

set(TROUPE_ROOMS "" CACHE INTERNAL "static libraries that make up libtroupe.so")

# Rooms that lay out memory themselves. ASan's builds check the alignment of pointers in these alone, since the check
# makes g++ slow.
set(TROUPE_MEMORY_ROOMS base ring wire net objectstore actors kernels)

# troupe_room(name [FOLDER folder] [INCLUDE regex] [EXCLUDE regex] [ROOMS room...] [LIBRARIES lib...])
# Makes a static library room_<name> of every .cpp below the folder. libtroupe.so is their union. Unit tests link the rooms
# directly, since libtroupe.so hides everything that is not public.
function(troupe_room name)
  cmake_parse_arguments(arg "" "FOLDER;INCLUDE;EXCLUDE" "ROOMS;LIBRARIES;SOURCES" ${ARGN})
  if(NOT arg_FOLDER)
    set(arg_FOLDER ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${arg_FOLDER}/*.cpp)
  if(arg_INCLUDE)
    list(FILTER sources INCLUDE REGEX ${arg_INCLUDE})
  endif()
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${arg_EXCLUDE})
  endif()
  if(NOT sources AND NOT arg_SOURCES)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty_${name}.cpp "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty_${name}.cpp)
  endif()
  add_library(room_${name} STATIC ${sources} ${arg_SOURCES})
  target_include_directories(room_${name} PUBLIC ${TROUPE_INCLUDE})
  target_link_libraries(room_${name} PRIVATE troupe_flags)
  foreach(room IN LISTS arg_ROOMS)
    target_link_libraries(room_${name} PUBLIC room_${room})
  endforeach()
  target_link_libraries(room_${name} PUBLIC Threads::Threads PRIVATE ${arg_LIBRARIES})
  if(TROUPE_SANITIZE STREQUAL "address" AND NOT name IN_LIST TROUPE_MEMORY_ROOMS)
    target_compile_options(room_${name} PRIVATE -fno-sanitize=alignment)
  endif()
  if(NOT name STREQUAL "kernels")  # g++ 12 crashes in the units of kernels, which have options of their own
    troupe_precompile(room_${name} rooms)
  endif()
  set(TROUPE_ROOMS ${TROUPE_ROOMS} room_${name} CACHE INTERNAL "")
endfunction()

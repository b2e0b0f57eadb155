include(GNUInstallDirs)

# One shared library made of every room, and interface targets that name its parts.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/troupe.cpp CONTENT "")   # a library needs a source; written only once
add_library(troupe SHARED ${CMAKE_BINARY_DIR}/troupe.cpp)
target_link_libraries(troupe PRIVATE troupe_flags)
foreach(room IN LISTS TROUPE_ROOMS)
  target_link_libraries(troupe PRIVATE "-Wl,--whole-archive" ${room} "-Wl,--no-whole-archive")
endforeach()
target_include_directories(troupe PUBLIC $<BUILD_INTERFACE:${TROUPE_INCLUDE}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(troupe PUBLIC cxx_std_20)
target_link_options(troupe INTERFACE -rdynamic)  # gives remote stack traces the names of functions
set_target_properties(troupe PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  # The plug-ins lie beside the library. Its run path is the same at build time: CMake would pad it with empty entries,
  # which mean ".".
  INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
add_library(troupe::troupe ALIAS troupe)
set(TROUPE_PARTS base objectstore runtime actors kernels train tune)
if(TROUPE_SUBSET)
  set(TROUPE_PARTS base actors kernels train)
endif()
foreach(part IN LISTS TROUPE_PARTS)
  add_library(troupe_part_${part} INTERFACE)
  target_link_libraries(troupe_part_${part} INTERFACE troupe)
  set_target_properties(troupe_part_${part} PROPERTIES EXPORT_NAME ${part})
  add_library(troupe::${part} ALIAS troupe_part_${part})
endforeach()

troupe_cuda_plugin(${CMAKE_SOURCE_DIR}/kernels/plugin)

if(TROUPE_SUBSET)
  return()
endif()
# The `troupe` command: the library with another main. It starts this same executable as agents and as control.
add_executable(troupe_cli ${CMAKE_SOURCE_DIR}/runtime/cli/main.cpp)
target_link_libraries(troupe_cli PRIVATE troupe troupe_flags)
set_target_properties(troupe_cli PROPERTIES OUTPUT_NAME troupe)

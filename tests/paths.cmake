# The unit behind tests/paths.hpp.
set(paths_unit ${CMAKE_CURRENT_BINARY_DIR}/paths.cpp)
add_library(tests_paths STATIC ${paths_unit})
target_include_directories(tests_paths PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_features(tests_paths PRIVATE cxx_std_20)
set_property(GLOBAL PROPERTY TROUPE_TEST_PATHS "#include \"tests/paths.hpp\"\n\n")

# troupe_test_path(name path): defines paths::name(); the path may be a generator expression.
function(troupe_test_path name path)
  set_property(GLOBAL APPEND_STRING PROPERTY TROUPE_TEST_PATHS
               "const char* paths::${name}() { return R\"(${path})\"; }\n")
endfunction()

# Writes the unit once all paths are known: at the end of this folder, or of the part of it that the compute subset has.
function(troupe_write_test_paths)
  get_property(text GLOBAL PROPERTY TROUPE_TEST_PATHS)
  file(GENERATE OUTPUT ${paths_unit} CONTENT "${text}")
endfunction()
cmake_language(DEFER CALL troupe_write_test_paths)

troupe_test_path(golden ${CMAKE_CURRENT_SOURCE_DIR}/golden)

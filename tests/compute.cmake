# Tests of the rooms that the compute subset contains.
troupe_tests(runtime/base ROOMS base TSAN)
troupe_tests(actors ROOMS collective)
foreach(fake "|22809|" "_old|21003|" "_part|22809|FAKE_LACKS=1")   # they only look like NCCL
  string(REPLACE "|" ";" fake "${fake}")
  list(GET fake 0 name)
  list(GET fake 1 version)
  list(GET fake 2 lacks)
  add_library(fake_nccl${name} MODULE gpu/fake_nccl.cpp)
  target_compile_definitions(fake_nccl${name} PRIVATE FAKE_VERSION=${version} ${lacks})
  set_target_properties(fake_nccl${name} PROPERTIES CXX_VISIBILITY_PRESET default UNITY_BUILD OFF)
  troupe_test_path(fake_nccl${name} $<TARGET_FILE:fake_nccl${name}>)
  add_dependencies(actors_test fake_nccl${name})
endforeach()
add_library(fake_nccl_ranks MODULE device/fake_nccl.cpp)   # a stand-in for NCCL whose ranks are threads
target_link_libraries(fake_nccl_ranks PRIVATE troupe_flags)
target_include_directories(fake_nccl_ranks PRIVATE ${TROUPE_INCLUDE} ${CMAKE_SOURCE_DIR})
set_target_properties(fake_nccl_ranks PROPERTIES CXX_VISIBILITY_PRESET default UNITY_BUILD OFF)
troupe_test_path(fake_nccl_ranks $<TARGET_FILE:fake_nccl_ranks>)
add_dependencies(actors_test fake_nccl_ranks)
troupe_tests(kernels ROOMS kernels LABELS unit gpu)
troupe_tests(kernels/device ROOMS kernels)   # it forks, so TSan cannot run it
foreach(part layers pipeline engine checkpoint)   # the training core, which needs no runtime
  troupe_tests(train/${part} ROOMS train_core)
endforeach()
troupe_tests(train/params ROOMS train_core TSAN)
if(TARGET train_engine_test)
  add_dependencies(train_engine_test fake_nccl_ranks)
endif()
# The overlap tests compare two measured times, so they run with no other test beside them.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/overlap_serial.cmake [[
foreach(test IN LISTS train_engine_test_TESTS)
  if(test MATCHES "\\.Overlap\\.")
    set_tests_properties(${test} PROPERTIES RUN_SERIAL ON)
  endif()
endforeach()
]])
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/overlap_serial.cmake)

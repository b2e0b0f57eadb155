# Tests of what the compute subset holds.
troupe_tests(base ROOMS base TSAN)
troupe_tests(actors ROOMS collective)
troupe_tests(kernels ROOMS kernels LABELS unit gpu)
troupe_tests(kernels/device ROOMS kernels)
foreach(part params layers engine checkpoint)   # the training core, which needs no runtime
  troupe_tests(train/${part} ROOMS train_core)
endforeach()
if(TARGET train_engine_test)
  target_compile_definitions(train_engine_test PRIVATE TROUPE_GOLDEN="${CMAKE_CURRENT_SOURCE_DIR}/golden")
endif()

# Third-party libraries. Each is linked privately by the one room, or plug-in, that uses it.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
if(TROUPE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TROUPE_SUBSET)
  return()
endif()
find_package(PkgConfig REQUIRED)
find_package(CapnProto REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
# zmq.h includes none of what libzmq is made with; CMake 3.25 names those folders otherwise when it configures again, and
# what has other flags is compiled again.
set_target_properties(PkgConfig::ZMQ PROPERTIES
                      INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES "${ZMQ_INCLUDEDIR}")
find_package(RocksDB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(CAF REQUIRED)  # FindCAF.cmake of ours: CAF 0.17 ships none

# RocksDB's config names a static and a shared library; the static one is not position independent everywhere.
if(TARGET RocksDB::rocksdb-shared)
  set(TROUPE_ROCKSDB RocksDB::rocksdb-shared)
else()
  set(TROUPE_ROCKSDB RocksDB::rocksdb)
endif()
if(TROUPE_BUILD_TESTS)
  find_path(RAPIDCHECK_INCLUDE rapidcheck.h)
  find_library(RAPIDCHECK_LIBRARY rapidcheck)
endif()

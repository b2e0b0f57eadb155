# The package: public headers, libtroupe.so with its plug-ins, the CMake package and the pkg-config file. The CMake
# package is troupe::troupe plus one component per room; every component is an interface on the one library.
include(CMakePackageConfigHelpers)

set(TROUPE_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
list(TRANSFORM TROUPE_PARTS PREPEND troupe_part_ OUTPUT_VARIABLE troupe_part_targets)
install(TARGETS troupe ${troupe_part_targets} EXPORT troupe-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Installs headers under the paths by which they are included: "troupe/<room>/x.hpp". internal/ stays private. Of
# runtime and objectstore only the top of the folder (with base/, detail/ and engine/engine.hpp) is for users; the folders
# below are the implementation.
foreach(room runtime objectstore actors kernels train tune)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${room}/*.hpp)
  list(FILTER headers EXCLUDE REGEX "/(internal|plugin)/")
  if(room MATCHES "^(runtime|objectstore)$")
    list(FILTER headers INCLUDE REGEX "^${room}/((base|detail)/)?[^/]+$|^runtime/engine/(engine|log_line)\\.hpp$")
  endif()
  if(TROUPE_SUBSET)
    list(FILTER headers INCLUDE REGEX "^(runtime/(base/|version\\.hpp)|kernels/|actors/(actors\\.hpp$|collective/)|${TROUPE_TRAIN_CORE_HEADERS})")
    list(FILTER headers EXCLUDE REGEX "^actors/collective/tcp/")   # it needs OpenSSL
  endif()
  foreach(header IN LISTS headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder})
  endforeach()
endforeach()
if(NOT TROUPE_SUBSET)
  install(FILES ${CMAKE_SOURCE_DIR}/runtime/troupe.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe)
endif()

# Installs the command line tool and the plug-ins, where this build has them.
foreach(program troupe_cli)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
get_property(troupe_plugins GLOBAL PROPERTY TROUPE_PLUGINS)
foreach(plugin IN LISTS troupe_plugins)
  install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()

install(EXPORT troupe-targets NAMESPACE troupe:: DESTINATION ${TROUPE_CMAKE_FOLDER})
string(REPLACE ";" " " TROUPE_PART_NAMES "${TROUPE_PARTS}")
set(TROUPE_PACKAGE_IS "")
if(TROUPE_SUBSET)
  set(TROUPE_PACKAGE_IS "it was configured with -DTROUPE_SUBSET=${TROUPE_SUBSET}; ")
endif()
configure_package_config_file(${CMAKE_SOURCE_DIR}/runtime/cmake/troupe-config.cmake.in
                              ${CMAKE_BINARY_DIR}/troupe-config.cmake INSTALL_DESTINATION ${TROUPE_CMAKE_FOLDER})
# Before 1.0 a new minor version may change anything, and the library's SONAME changes with it.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/troupe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/troupe-config.cmake ${CMAKE_BINARY_DIR}/troupe-config-version.cmake
        DESTINATION ${TROUPE_CMAKE_FOLDER})

# The pkg-config file computes the prefix from its own place, so that the installed folder may be moved.
file(RELATIVE_PATH TROUPE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TROUPE_PC_PREFIX "${TROUPE_PC_PREFIX}")
configure_file(${CMAKE_SOURCE_DIR}/runtime/cmake/troupe.pc.in ${CMAKE_BINARY_DIR}/troupe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

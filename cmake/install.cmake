# The package: find_package(ddtree) from the install tree and from the build tree, and pkg-config.
include(CMakePackageConfigHelpers)
set(ddtree_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddtree)
get_target_property(ddtree_type ddtree TYPE)

# A shared library that holds the CUDA runtime needs no toolkit on the user's machine.
if(ddtree_type STREQUAL "SHARED_LIBRARY" AND DDTREE_CUDART STREQUAL "static")
  set(ddtree_needs_cuda_toolkit OFF)
else()
  set(ddtree_needs_cuda_toolkit ${DDTREE_WITH_CUDA})
endif()

install(TARGETS ddtree EXPORT ddtree-targets)
install(DIRECTORY include/ddtree TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT ddtree-targets NAMESPACE ddtree:: DESTINATION ${ddtree_package_dir})
export(EXPORT ddtree-targets NAMESPACE ddtree:: FILE ddtree-targets.cmake)

configure_package_config_file(cmake/ddtree-config.cmake.in ddtree-config.cmake
  INSTALL_DESTINATION ${ddtree_package_dir})
write_basic_package_version_file(ddtree-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddtree-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/ddtree-config-version.cmake DESTINATION ${ddtree_package_dir})

# pkg-config: paths relative to the file itself, so that the tree can be moved.
file(RELATIVE_PATH ddtree_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" ddtree_pc_prefix ${ddtree_pc_prefix})
set(ddtree_pc_cflags)
if(ddtree_type STREQUAL "STATIC_LIBRARY")
  set(ddtree_pc_cflags " -DDDTREE_STATIC")
endif()
set(ddtree_pc_private "-pthread")
if(DDTREE_WITH_CUDA AND DDTREE_CUDART STREQUAL "static")
  cmake_path(GET CUDA_cudart_static_LIBRARY PARENT_PATH ddtree_cudart_dir)
  string(APPEND ddtree_pc_private " -L${ddtree_cudart_dir} -lcudart_static -ldl -lrt")
elseif(DDTREE_WITH_CUDA)
  cmake_path(GET CUDA_cudart_LIBRARY PARENT_PATH ddtree_cudart_dir)
  string(APPEND ddtree_pc_private " -L${ddtree_cudart_dir} -lcudart")
endif()
configure_file(cmake/ddtree.pc.in ddtree.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddtree.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

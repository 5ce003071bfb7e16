# What `cmake --install` puts where: the headers, both libraries, the programs, and what find_package and pkg-config
# read. The prefix may be moved afterwards.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(ulyx_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulyx)

install(FILES ${PROJECT_SOURCE_DIR}/include/ulyx.h ${PROJECT_SOURCE_DIR}/include/ulyx.hpp
  ${PROJECT_SOURCE_DIR}/include/ulyx_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Two export sets: who links the shared library needs neither the CUDA Toolkit nor NCCL's files.
install(TARGETS ulyx EXPORT ulyxSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ulyx_static EXPORT ulyxStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(kind Shared Static)
  install(EXPORT ulyx${kind}Targets NAMESPACE ulyx:: DESTINATION ${ulyx_cmake_dir})
endforeach()

# CUDA and NCCL are looked for where the build found them: by libulyx.so and the programs when they run, by
# ulyxConfig.cmake and ulyx.pc when the static library is linked.
set(ULYX_PC_LIBS_PRIVATE "-pthread -lm")
set(ULYX_CUDA_ROOT "")
set(ULYX_NCCL_DIR "")
set(ulyx_cuda_dirs "")
if(ULYX_HAVE_CUDA)
  # The host's part of a kernel is C++, and who links may have a C compiler only.
  set(ulyx_cxx_library ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(FILTER ulyx_cxx_library INCLUDE REGEX "^(std)?c\\+\\+$")
  list(REMOVE_DUPLICATES ulyx_cxx_library)
  target_link_libraries(ulyx_static PRIVATE $<INSTALL_INTERFACE:CUDA::cudart> $<INSTALL_INTERFACE:ulyx::nccl>)
  foreach(lib ${ulyx_cxx_library})
    target_link_libraries(ulyx_static PRIVATE $<INSTALL_INTERFACE:${lib}>)
    string(PREPEND ULYX_PC_LIBS_PRIVATE "-l${lib} ")
  endforeach()
  get_filename_component(ULYX_CUDA_ROOT ${CUDAToolkit_BIN_DIR} DIRECTORY)
  get_filename_component(ULYX_NCCL_DIR ${NCCL_LIBRARY} DIRECTORY)
  get_filename_component(ulyx_nccl_name ${NCCL_LIBRARY} NAME)
  # By hand: INSTALL_RPATH_USE_LINK_PATH leaves out what nvcc knows by itself, which the loader need not know.
  set(ulyx_cuda_dirs ${CUDAToolkit_LIBRARY_DIR} ${ULYX_NCCL_DIR})
  list(REMOVE_DUPLICATES ulyx_cuda_dirs)
  list(REMOVE_ITEM ulyx_cuda_dirs ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  set_target_properties(ulyx PROPERTIES INSTALL_RPATH "${ulyx_cuda_dirs}")
  foreach(dir ${ulyx_cuda_dirs})
    string(PREPEND ULYX_PC_LIBS_PRIVATE "-L${dir} -Wl,-rpath,${dir} ")
  endforeach()
  string(APPEND ULYX_PC_LIBS_PRIVATE " -lcudart -l:${ulyx_nccl_name}")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ulyxConfig.cmake.in ${PROJECT_BINARY_DIR}/ulyxConfig.cmake
  INSTALL_DESTINATION ${ulyx_cmake_dir} NO_SET_AND_CHECK_MACRO)
# As the SONAME says: what was built with one minor version runs with the next.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulyxConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulyxConfig.cmake ${PROJECT_BINARY_DIR}/ulyxConfigVersion.cmake
  DESTINATION ${ulyx_cmake_dir})

# Directories that were given as absolute paths stay where they are; all others move with the prefix.
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(ULYX_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(ULYX_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(ULYX_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH ULYX_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" ULYX_PC_PREFIX "\${pcfiledir}/${ULYX_PC_PREFIX}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/ulyx.pc.in ${PROJECT_BINARY_DIR}/ulyx.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ulyx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The programs that users run: ulyx_plan and all that measure. They find libulyx.so beside them.
if(ULYX_PERF)
  get_property(ulyx_programs DIRECTORY ${PROJECT_SOURCE_DIR}/perf PROPERTY BUILDSYSTEM_TARGETS)
  list(FILTER ulyx_programs INCLUDE REGEX "_perf$|^ulyx_plan$")
  file(RELATIVE_PATH ulyx_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(${ulyx_programs} PROPERTIES
    INSTALL_RPATH "\$ORIGIN/${ulyx_bin_to_lib};${ulyx_cuda_dirs}")
  install(TARGETS ${ulyx_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

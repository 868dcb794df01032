# The component metal-on-cpu: the headers, the library, what the library uses beside itself, msl-run and a CMake package. Each of
# them finds the others relative to itself, so that an installed prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/metal-on-cpu)
set(shaders ${CMAKE_CURRENT_SOURCE_DIR}/shaders)
file(RELATIVE_PATH library_from_command ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(msl-run PROPERTIES INSTALL_RPATH $<IF:$<BOOL:${APPLE}>,@loader_path,\$ORIGIN>/${library_from_command})
install(TARGETS metal_on_cpu msl-run EXPORT metal-on-cpu COMPONENT metal-on-cpu
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT metal-on-cpu
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT metal-on-cpu
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS metal_on_cpu_pass LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/metal-on-cpu COMPONENT metal-on-cpu)
install(DIRECTORY ${shaders}/prelude DESTINATION ${CMAKE_INSTALL_LIBDIR}/metal-on-cpu COMPONENT metal-on-cpu)
install(DIRECTORY ${shaders}/include/metal_on_cpu DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT metal-on-cpu)
install(EXPORT metal-on-cpu FILE metal-on-cpu-config.cmake NAMESPACE metal_on_cpu:: DESTINATION ${package_folder}
        COMPONENT metal-on-cpu)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/metal-on-cpu-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/metal-on-cpu-config-version.cmake DESTINATION ${package_folder}
        COMPONENT metal-on-cpu)

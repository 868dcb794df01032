# Headers, both libraries, the command with its man page, a CMake package, a pkg-config file, pages and examples.
# Everything installed finds the rest relative to itself, so that a prefix may be moved after it was installed. Components are
# packages (package.cmake): `library` is what runs, `dev` what compiles, `tools` the command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(cmake/pkg_config.cmake)

# metal_marlin_install_library(PREFIX LIBDIR DOCDIR LIBRARY DEV [EXCLUDE_FROM_ALL]): the libraries in LIBDIR, and all that compiles
# with them, as the components LIBRARY and DEV. With a PREFIX, they are for this prefix alone.
function(metal_marlin_install_library prefix libdir docdir library dev)
  set(package_dir ${libdir}/cmake/metal-marlin)
  set(targets ${dev}-targets)
  install(TARGETS metal_marlin metal_marlin_static EXPORT ${targets}
          LIBRARY DESTINATION ${libdir} COMPONENT ${library} NAMELINK_COMPONENT ${dev} ${ARGN}
          ARCHIVE DESTINATION ${libdir} COMPONENT ${dev} ${ARGN}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${library} ${ARGN}  # a DLL
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY include/metal_marlin DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${dev} ${ARGN}
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(EXPORT ${targets} NAMESPACE metal_marlin:: DESTINATION ${package_dir} FILE metal-marlin-targets.cmake
          COMPONENT ${dev} ${ARGN})
  set(config ${CMAKE_CURRENT_BINARY_DIR}/${dev})
  configure_package_config_file(cmake/metal-marlin-config.cmake.in ${config}/metal-marlin-config.cmake
                                INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${config}/metal-marlin-config-version.cmake COMPATIBILITY SameMajorVersion)
  install(FILES ${config}/metal-marlin-config.cmake ${config}/metal-marlin-config-version.cmake DESTINATION ${package_dir}
          COMPONENT ${dev} ${ARGN})
  # Pages and examples keep their places beside each other, because they refer to each other.
  install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE NOTICE DESTINATION ${docdir} COMPONENT ${dev} ${ARGN})
  install(DIRECTORY docs DESTINATION ${docdir} COMPONENT ${dev} ${ARGN} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
  install(DIRECTORY examples DESTINATION ${docdir} COMPONENT ${dev} ${ARGN}
          FILES_MATCHING PATTERN "*.c" PATTERN "*.cc" PATTERN "*.h" PATTERN "*.inc" PATTERN "*.md" PATTERN CMakeLists.txt)
  metal_marlin_install_pkg_config("${prefix}" ${libdir} ${dev} ${ARGN})
endfunction()
metal_marlin_install_library("" ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_DOCDIR} library dev)

if(TARGET metal-marlin)
  # The command finds the library beside itself, wherever the prefix is.
  file(RELATIVE_PATH library_from_command ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(metal-marlin PROPERTIES INSTALL_RPATH
                        $<IF:$<BOOL:${APPLE}>,@loader_path,\$ORIGIN>/${library_from_command})
  install(TARGETS metal-marlin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES tools/metal-marlin.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -D BUILD=${CMAKE_CURRENT_BINARY_DIR}
                                      -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/uninstall.cmake
                    VERBATIM USES_TERMINAL)
endif()

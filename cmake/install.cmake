# Headers, both libraries, the command with its man page and completions, a CMake package and a pkg-config file. Everything
# installed finds the rest relative to itself, so that a prefix may be moved after it was installed. Components are packages
# (package.cmake): `library` is what runs, `dev` what compiles, `tools` the command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/metal-marlin)
install(TARGETS metal_marlin metal_marlin_static EXPORT metal-marlin-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/metal_marlin DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT metal-marlin-targets NAMESPACE metal_marlin:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/metal-marlin-config.cmake.in metal-marlin-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(metal-marlin-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/metal-marlin-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/metal-marlin-config-version.cmake DESTINATION ${package_dir} COMPONENT dev)

if(TARGET metal-marlin)
  # The command finds the library beside itself, wherever the prefix is.
  file(RELATIVE_PATH library_from_command ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(metal-marlin PROPERTIES INSTALL_RPATH
                        $<IF:$<BOOL:${APPLE}>,@loader_path,\$ORIGIN>/${library_from_command})
  install(TARGETS metal-marlin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES tools/metal-marlin.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  if(TARGET metal_marlin_completions)
    set(completions ${CMAKE_CURRENT_BINARY_DIR}/tools/completions)
    install(FILES ${completions}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME metal-marlin
            COMPONENT tools)
    install(FILES ${completions}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _metal-marlin COMPONENT tools)
    install(FILES ${completions}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME metal-marlin.fish
            COMPONENT tools)
  endif()
endif()

# The pkg-config file. GNUInstallDirs' folders may be relative to the prefix or absolute; the prefix follows from the place of
# the file itself when that is relative to the prefix.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(pc_${folder} "${CMAKE_INSTALL_${folder}}")
  else()
    set(pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
# What the static library needs besides itself: the C++ runtime that this compiler links by default.
set(pc_libs_private "")
foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  if(library MATCHES "^(stdc\\+\\+|c\\+\\+|m)$")
    string(APPEND pc_libs_private " -l${library}")
  endif()
endforeach()
foreach(library IN LISTS CMAKE_DL_LIBS)
  string(APPEND pc_libs_private " -l${library}")
endforeach()
foreach(framework IN LISTS metal_marlin_frameworks)
  string(APPEND pc_libs_private " ${framework}")
endforeach()
string(APPEND pc_libs_private " ${CMAKE_THREAD_LIBS_INIT}")
string(STRIP "${pc_libs_private}" pc_libs_private)
configure_file(pkgconfig/metal-marlin.pc.in metal-marlin.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/metal-marlin.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

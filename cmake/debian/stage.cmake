# Run by cpack on the staged files of each component: what Debian's policy asks of them beyond those that anybody installs.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
set(texts ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/texts)
configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${texts}/copyright COPYONLY)
foreach(header_only nlohmann-json3-dev libcli11-dev)
  if(EXISTS /usr/share/doc/${header_only}/copyright)
    file(READ /usr/share/doc/${header_only}/copyright theirs)
    file(APPEND ${texts}/copyright "\n--- ${header_only} ---\n\n${theirs}")
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/../../CHANGELOG.md ${texts}/changelog COPYONLY)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${texts}/changelog.Debian "metal-marlin (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; \
urgency=medium\n\n  * Packaged by cpack; changelog.gz says what is new.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
execute_process(COMMAND gzip -9nf ${texts}/changelog ${texts}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  file(COPY ${texts}/ DESTINATION
       ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  # For lintian: what cpack makes is no upload to Debian, and CMake itself writes the scripts that call ldconfig.
  set(overrides "initial-upload-closes-no-bugs\n")
  if(component STREQUAL "debian_library")
    string(APPEND overrides "maintscript-calls-ldconfig\n")
  endif()
  file(WRITE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share/lintian/overrides/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}
       "${overrides}")
endforeach()
# Pages are packed, and the loader finds the library by itself.
set(tools ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/tools/usr)
if(EXISTS ${tools})
  file(RPATH_REMOVE FILE ${tools}/bin/metal-marlin)
  execute_process(COMMAND gzip -9n ${tools}/share/man/man1/metal-marlin.1 COMMAND_ERROR_IS_FATAL ANY)
endif()
# The license is in the file copyright, and the changelog beside it.
file(REMOVE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/debian_dev/usr/share/doc/libmetal-marlin-dev/LICENSE
            ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/debian_dev/usr/share/doc/libmetal-marlin-dev/CHANGELOG.md)
# Whatever the umask is.
execute_process(COMMAND chmod -R u=rwX,go=rX ${CPACK_TEMPORARY_INSTALL_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)

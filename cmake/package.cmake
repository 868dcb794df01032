# Packages, by `cpack` in a build folder: for Debian where there is dpkg, else an archive. Their parts are components of
# install.cmake; who distributes them says so by -DCPACK_PACKAGE_CONTACT="Name <mail>" and -DCPACK_DEBIAN_PACKAGE_HOMEPAGE=URL.
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "metal-marlin maintainers <maintainers@metal-marlin.invalid>")
endif()
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # it would go before each package's own
set(CPACK_STRIP_FILES ON)
find_program(METAL_MARLIN_DPKG dpkg)
mark_as_advanced(METAL_MARLIN_DPKG)
set(CPACK_GENERATOR TGZ)
if(METAL_MARLIN_DPKG AND NOT CMAKE_CROSSCOMPILING)  # whose packages would say this machine's architecture
  set(CPACK_GENERATOR DEB)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)  # on exactly this version
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/stage.cmake)

# Debian's libraries lie in a folder for each architecture, so that those of several architectures may be installed at once. These
# components hold all that has such a place; they are installed by cpack alone.
set(debian_libdir lib/${CMAKE_LIBRARY_ARCHITECTURE})
string(REGEX REPLACE "/$" "" debian_libdir "${debian_libdir}")  # where the compiler knows no architecture
metal_marlin_install_library(/usr ${debian_libdir} share/doc/libmetal-marlin-dev debian_library debian_dev EXCLUDE_FROM_ALL)
set(CPACK_COMPONENTS_ALL debian_library debian_dev tools)

# debian_package(COMPONENT NAME SECTION MULTIARCH SYNOPSIS TEXT [COMPONENT...]): the package of a component, and those that it needs.
macro(debian_package component name section multiarch synopsis text)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${name})
  # CMake before 3.31 has no variable for the field Multi-Arch, but writes this one as it is.
  set(CPACK_DEBIAN_${component}_PACKAGE_SECTION "${section}\nMulti-Arch: ${multiarch}")
  set(CPACK_DEBIAN_${component}_DESCRIPTION "${synopsis}\n${text}")
  set(CPACK_COMPONENT_${component}_DEPENDS ${ARGN})
endmacro()
set(about "metal-marlin opens quantized checkpoints (GPTQ, AWQ, MXFP4, NVFP4, GGUF,
MLX, compressed-tensors), packs each layer once for the processor at hand,
and multiplies matrices by it, through one C ABI.")
get_target_property(soversion metal_marlin SOVERSION)
debian_package(DEBIAN_LIBRARY libmetal-marlin${soversion} libs same "Multiplication by 4-bit weights, shared library" "${about}")
set(CPACK_DEBIAN_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers
    ${PROJECT_SOURCE_DIR}/cmake/debian/symbols)
debian_package(DEBIAN_DEV libmetal-marlin-dev libdevel same "Multiplication by 4-bit weights, development files" "${about}
.
This package has the headers for C and C++, the static library, files for
pkg-config and CMake, the pages and the examples." debian_library)
if(TARGET metal-marlin)
  debian_package(TOOLS metal-marlin science foreign "Command that looks at, checks and converts 4-bit weights" "${about}
.
This package has the command, which lists, checks, unpacks, quantizes and
times the layers of checkpoints, with its manual page." debian_library)
endif()
include(CPack)

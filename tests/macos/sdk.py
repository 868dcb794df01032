#!/usr/bin/env python3
"""Makes what cross-compiling for Apple's systems takes, out of what Linux has.

    sdk.py FOLDER ZIG       FOLDER/{macos,ios}/..., from the package ziglang in ZIG

Each system gets an SDK and two compilers, bin/clang and bin/clang++. They compile with the clang, the
libc++ and the C library's headers of ziglang, and link with lld. Linking needs to know what Apple's
libraries have, and nothing else of them, so the SDK has lists of names (.tbd):

- libSystem: ziglang's own list.
- libc++: the names of LLVM's libc++ for Linux, which are the same. What is newer than the oldest
  system that we serve, libc++ itself keeps from being used (availability annotations).
- Foundation, Metal and the runtime of Objective-C: the names in apple.symbols, exactly. macos_test.py
  compares each with lists of Apple's API and with what the library uses.

Headers of the frameworks are the test-bed's. Headers of other libraries are those of this system,
each in a folder where nothing of the system's own C library is beside it.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FRAMEWORKS = ROOT / "tests" / "metal_on_cpu" / "framework" / "include"
HEADERS = ["nlohmann", "CLI", "fmt"]
# The names of the system for clang and for ziglang, the SDK, and what the linker calls it.
SYSTEMS = {
    "macos": ("arm64-apple-macos14.0", "aarch64-macos.14.0", "MacOSX.sdk", "macos"),
    "ios": ("arm64-apple-ios17.0", "aarch64-ios.17.0", "iPhoneOS.sdk", "ios"),
}
# What @available calls: Apple's compilers have this function in their own runtime library, ziglang's have not. libSystem has the
# function that answers.
AVAILABILITY = """
#include <stdbool.h>
#include <stdint.h>

struct version {
  uint32_t platform;
  uint32_t version;
};
bool _availability_version_check(uint32_t count, struct version versions[]);

__attribute__((visibility("hidden"))) int32_t __isPlatformVersionAtLeast(uint32_t platform, uint32_t major, uint32_t minor,
                                                                         uint32_t patch);
int32_t __isPlatformVersionAtLeast(uint32_t platform, uint32_t major, uint32_t minor, uint32_t patch) {
  struct version asked = {platform, major << 16 | minor << 8 | patch};
  return _availability_version_check(1, &asked);
}
"""
LIBRARIES = {
    "Foundation": "/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
    "Metal": "/System/Library/Frameworks/Metal.framework/Versions/A/Metal",
    "libobjc": "/usr/lib/libobjc.A.dylib",
}


def stub(install_name, system, symbols, exports_again=""):
    """A list of names that lld reads as a library. Classes have words of their own."""
    classes = sorted(name[len("_OBJC_CLASS_$_"):] for name in symbols if name.startswith("_OBJC_CLASS_$_"))
    others = sorted(name for name in symbols if not name.startswith("_OBJC_"))
    lines = ["--- !tapi-tbd", "tbd-version: 4", f"targets: [ arm64-{system} ]", f"install-name: '{install_name}'"]
    if exports_again:
        lines += ["reexported-libraries:", f"  - targets: [ arm64-{system} ]", f"    libraries: [ '{exports_again}' ]"]
    lines += ["exports:", f"  - targets: [ arm64-{system} ]"]
    if others:
        lines.append("    symbols: [ " + ", ".join(f"'{name}'" for name in others) + " ]")
    if classes:
        lines.append("    objc-classes: [ " + ", ".join(classes) + " ]")
    return "\n".join([*lines, ""])


def write(at, *stubs):
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text("".join(stubs) + "...\n")


def system_symbols(path):
    """What libSystem has for this processor; its list names arm64e alone, which has the same names."""
    entries = re.findall(r"- targets: +\[([^]]*)\]\s+symbols: +\[([^]]*)\]", path.read_text())
    names = {name.strip().strip("'") for targets, symbols in entries if "arm64e-macos" in targets
             for name in symbols.split(",")}
    if "_malloc" not in names or "_strlen" not in names:
        sys.exit(f"sdk.py: {path} has no _malloc, or it has another form")
    return names


def cxx_symbols():
    folder = pathlib.Path(subprocess.run(["clang++-19", "-print-file-name=libc++.so.1"], check=True,
                                         capture_output=True, text=True).stdout.strip()).parent
    names = set()
    for library in ("libc++.so.1", "libc++abi.so.1"):
        said = subprocess.run(["llvm-nm-19", "-D", "--defined-only", "--format=just-symbols", folder / library],
                              check=True, capture_output=True, text=True).stdout
        names |= {"_" + name.split("@")[0] for name in said.split()}
    return names


def apple_symbols(system):
    """{library: {symbol}} of apple.symbols, for a system."""
    found = {name: set() for name in LIBRARIES}
    for line in (HERE / "apple.symbols").read_text().splitlines():
        library, symbol, *only = line.split() if not line.startswith("#") else ("", "", "none")
        if not only or only == [f"({system})"]:
            found[library].add(symbol)
    return found


def make_stubs(sdk, system, zig):
    libraries = sdk / "usr/lib"
    write(libraries / "libSystem.tbd",
          stub("/usr/lib/libSystem.B.dylib", system, system_symbols(zig / "lib/libc/darwin/libSystem.tbd")))
    write(libraries / "libc++.tbd", stub("/usr/lib/libc++.1.dylib", system, cxx_symbols()))
    symbols = apple_symbols(system)
    for name in ("Foundation", "Metal"):
        framework = sdk / f"System/Library/Frameworks/{name}.framework"
        stubs = [stub(LIBRARIES[name], system, symbols[name])]
        if name == "Foundation":  # which brings the runtime of Objective-C along
            stubs = [stub(LIBRARIES[name], system, symbols[name], LIBRARIES["libobjc"]),
                     stub(LIBRARIES["libobjc"], system, symbols["libobjc"])]
        write(framework / f"{name}.tbd", *stubs)
        link(FRAMEWORKS / name, framework / "Headers")


def link(to, at):
    at.parent.mkdir(parents=True, exist_ok=True)
    if at.is_symlink():
        at.unlink()
    at.symlink_to(to)


def make_compilers(folder, sdk, target, zig_target, zig):
    """Whatever stops before linking is for ziglang's clang."""
    flags = ["-target", zig_target, "-fno-sanitize=all", "-g0", "-iframework", str(sdk / "System/Library/Frameworks"),
             "-I", str(HERE / "include"),
             # As Apple's own libc++: what it exports and what older systems do not have.
             "-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS", "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1",
             "-U_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS"]
    if "ios" in zig_target:
        flags += ["-idirafter", str(zig / "lib/libc/include/any-darwin-any")]
    availability = folder / "availability.o"
    availability.with_suffix(".c").write_text(AVAILABILITY)
    subprocess.run([zig / "zig", "cc", *flags, "-Wall", "-Wextra", "-Werror", "-c", availability.with_suffix(".c"),
                    "-o", availability], check=True)
    for name, mode in (("clang", "cc"), ("clang++", "c++")):
        at = folder / "bin" / name
        at.parent.mkdir(parents=True, exist_ok=True)
        compile_it = shlex.join([str(zig / "zig"), mode, *flags])
        link_it = shlex.join([f"{name}-19", "-target", target, "-fuse-ld=lld", "-isysroot", str(sdk),
                              "-Wl,-fatal_warnings"])
        at.write_text(f'''#!/bin/sh
# Made by tests/macos/sdk.py.
for argument; do
  case $argument in
    -c | -E | -S | -fsyntax-only | --version) exec {compile_it} "$@" ;;
  esac
done
exec {link_it} "$@" {shlex.quote(str(availability))}
''')
        at.chmod(0o755)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("zig", type=pathlib.Path)
    arguments = parser.parse_args()
    folder, zig = arguments.folder.absolute(), arguments.zig.absolute()
    for name in HEADERS:
        link(pathlib.Path("/usr/include") / name, folder / "include" / name)
    for system, (target, zig_target, sdk_name, linker_name) in SYSTEMS.items():
        sdk = folder / system / sdk_name
        make_stubs(sdk, linker_name, zig)
        make_compilers(folder / system, sdk, target, zig_target, zig)


if __name__ == "__main__":
    main()

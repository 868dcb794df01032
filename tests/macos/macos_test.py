#!/usr/bin/env python3
"""Reads back what the trees build/macos and build/ios have for Apple's systems, and plants mistakes that
the same compilers and checks must find.

    macos_test.py FOLDER MACOS IOS       FOLDER is what sdk.py made; MACOS and IOS are trees of CMake

Prints "passed NAME" and "FAILED NAME: why". The exit status is 1 where something failed.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import macho
import sdk

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
API = ROOT / "tests/metal_on_cpu/framework/apple_api"
EXPORTS = {"_" + name for name in re.findall(r"^ +(\w+);$", (ROOT / "src/api/exports.map").read_text(), re.MULTILINE)}
FLAGS = ["-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include"]
# The functions of the runtime that clang calls for ARC (clang's "AutomaticReferenceCounting", section Runtime support), and those
# that it calls instead of messages of the same names.
RUNTIME = {f"_objc_{name}" for name in (
    "autorelease autoreleasePoolPop autoreleasePoolPush autoreleaseReturnValue claimAutoreleasedReturnValue copyWeak destroyWeak "
    "initWeak loadWeak loadWeakRetained moveWeak release retain retainAutorelease retainAutoreleaseReturnValue "
    "retainAutoreleasedReturnValue retainBlock storeStrong storeWeak unsafeClaimAutoreleasedReturnValue alloc alloc_init "
    "allocWithZone opt_class opt_isKindOfClass opt_new opt_respondsToSelector opt_self msgSend msgSendSuper2 getProperty "
    "setProperty_atomic setProperty_nonatomic enumerationMutation").split()}


def run(*command):
    """What the command says against it, or nothing."""
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr or "no reason given"


class Apple:
    """The names that Apple's frameworks have."""

    def __init__(self):
        self.names = {}
        for framework in ("Metal", "Foundation"):
            lines = (API / f"{framework.lower()}_api.list").read_text().splitlines()
            found = (re.match(r"(class|constant|function) (\w+)", line) for line in lines)
            self.names[framework] = {(match.group(1) == "class", match.group(2)) for match in found if match}

    def has(self, library, symbol):
        if library == "libobjc":
            return symbol in RUNTIME
        if symbol == "___CFConstantStringClassReference":  # the class of @"", which is the compiler's
            return library == "Foundation"
        prefix = "_OBJC_CLASS_$_"
        is_class = symbol.startswith(prefix)
        return (is_class, symbol[len(prefix):] if is_class else symbol[1:]) in self.names[library]


def wrong_symbols(listed, imports, apple):
    """Of apple.symbols: what Apple does not have, and what the library does not use. (What is missing does not link.)"""
    wrong = []
    for library, symbols in listed.items():
        wrong += [f"{library} has no {symbol}" for symbol in sorted(symbols) if not apple.has(library, symbol)]
        wrong += [f"{symbol} of {library} is listed and not used" for symbol in sorted(symbols) if symbol not in imports]
    return wrong


def examples(folder, tree, scratch):
    """Each program of examples/, compiled and linked."""
    results = {}
    for source in sorted((ROOT / "examples").glob("*.c*")):
        name = "clang" if source.suffix == ".c" else "clang++"
        standard = "-std=c99" if source.suffix == ".c" else "-std=c++20"
        compiler, made = folder / "macos/bin" / name, scratch / source.stem
        result = run(compiler, *FLAGS, standard, "-O0", "-c", source, "-o", f"{made}.o")
        if not result and "dlopen" not in source.read_text():
            result = run(compiler, f"{made}.o", "-o", made, tree / "libmetal-marlin.dylib")
        results[f"example {source.name}"] = [result] if result else []
    return results


def installed(tree, prefix):
    """What is installed finds the library beside itself, and names no folder of the build."""
    failed = run("cmake", "--install", tree, "--prefix", prefix)
    if failed:
        return [failed]
    command, library = macho.File(prefix / "bin/metal-marlin"), macho.File(prefix / "lib/libmetal-marlin.0.dylib")
    wrong = macho.wrong_library(library, "macos", EXPORTS, ROOT) + command.wrong_system("macos") + command.wrong_paths(ROOT)
    for field, wanted in (("LC_RPATH", "@loader_path/../lib"), ("LC_LOAD_DYLIB", "@rpath/libmetal-marlin.0.dylib")):
        found = command.values(field, "path" if field == "LC_RPATH" else "name")
        if wanted not in found or (field == "LC_RPATH" and len(found) != 1):
            wrong.append(f"expected {field} {wanted}, found {found}")
    return wrong


def programs(tree):
    """Every test program is there, for the system that it is meant for."""
    made = [path for path in (tree / "tests").rglob("*_test") if path.is_file() and "CMakeFiles" not in path.parts]
    wrong = [f"{path.name}: {why}" for path in made for why in macho.File(path).wrong_system("macos")]
    return wrong if len(made) > 60 else wrong + [f"expected more than 60 programs of tests, found {len(made)}"]


def wrong_shaders(library, system):
    """Each file of kernels came compiled for its own system, but the one that the compiler refused; the text of all is there, too."""
    data = library.read_bytes()
    sdk_name, oldest = {"macos": ("macosx", "-mmacosx-version-min="), "ios": ("iphoneos", "-mios-version-min=")}[system]
    versions = {"metal": ("metal3.1", {"macos": "14.0", "ios": "17.0"}[system]), "metal4": ("metal4.0", "26.0")}
    wrong = []
    for path in sorted((ROOT / "shaders").glob("metal*/*.metal")):
        language, version = versions[path.parent.name]
        made = f"stand-in: -sdk {sdk_name} metal -std={language} {oldest}{version} -O2 -fno-fast-math {path.name}\n"
        if (made.encode() in data) == (path.name == "route.metal"):
            wrong.append(f"{path.name}: " + ("an empty library was expected" if path.name == "route.metal" else f"not found: {made}"))
        if path.read_bytes() not in data:
            wrong.append(f"{path.name}: its text is missing")
    return wrong


def wrong_targets(scratch):
    """For which system shaders are compiled, by what a build says of itself; for a simulator they are not."""
    script = scratch / "target.cmake"
    script.write_text(f"include({ROOT}/cmake/compile_shaders.cmake)\nmetal_marlin_metal_target(sdk oldest 14.0 17.0)\n"
                      'message("${sdk} ${oldest}")\n')
    wrong = []
    for system, sysroot, wanted in (("Darwin", "", "macosx -mmacosx-version-min=14.0"),
                                    ("iOS", "iphoneos", "iphoneos -mios-version-min=17.0"), ("iOS", "iphonesimulator", ""),
                                    ("iOS", "/Xcode/iPhoneSimulator.platform/Developer/SDKs/iPhoneSimulator.sdk", ""), ("tvOS", "appletvos", "")):
        said = subprocess.run(["cmake", f"-DCMAKE_SYSTEM_NAME={system}", f"-DCMAKE_OSX_SYSROOT={sysroot}", "-P", script],
                              capture_output=True, text=True).stderr.strip()
        if said != wanted:
            wrong.append(f"{system} {sysroot}: expected '{wanted}', found '{said}'")
    return wrong


def wrong_embedding(folder, tree, scratch):
    """Ends of embedded files are no atoms of their own, and an edit of a shader compiles them anew, even where no build system knows."""
    wrong = []
    objects = list(tree.rglob("embedded_shaders.cc.o"))
    listed = subprocess.run(["llvm-nm-19", "--format=darwin", *objects], check=True, capture_output=True, text=True).stdout
    ends = [line for line in listed.splitlines() if line.endswith("_end")]
    wrong += [line for line in ends if "alt entry" not in line]
    if len(ends) < 20:
        wrong.append(f"expected 20 and more ends of embedded files, found {len(ends)}")
    needed = scratch / "embedded.d"
    wrong.append(run(folder / "macos/bin/clang++", "-std=c++20", "-MD", "-MF", needed, f"-I{ROOT}", f"-I{ROOT}/src", f"-I{ROOT}/include",
                     "-c", ROOT / "src/backends/metal/embedded_shaders.cc", "-o", scratch / "embedded.o"))
    text = needed.read_text() if needed.exists() else ""
    for part in ("metal", "metal4", "common"):
        wrong += [f"{path.name} is no dependency" for path in sorted((ROOT / "shaders" / part).iterdir())
                  if f"shaders/{part}/{path.name}" not in text and path.name != "cuda_parameters.h"]
    return [line for line in wrong if line]


def wrong_measures(scratch):
    """What measure.py says where a compiler refuses a file, and of a kernel that miscomputes."""
    kernel = {"kernel": "gemv_u4_f16_m8", "pipeline": "up to 448 threads in simdgroups of 32", "probe": "agrees", "refused": ""}
    (scratch / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.22)\nproject(measured NONE)\ninclude({ROOT}/cmake/compile_shaders.cmake)\n"
        f"metal_marlin_compile_shaders({ROOT}/shaders to)\n"
        "add_custom_target(metal_marlin_shaders ALL DEPENDS ${to}/gemv.metallib ${to}/route.metallib)\n")
    wrong = [run("cmake", "-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Darwin", "-B", scratch / "measured", scratch)]
    wrong.append(run("cmake", "--build", scratch / "measured"))
    doctor = scratch / "doctor.json"
    for refused, status in (("", 0), ("gemv_u4_f16_m6", 1)):
        checks = {"kernels": [{**kernel, "refused": refused}], "messages": [], "failure": ""}
        doctor.write_text(json.dumps({"kernel_checks": [checks]}))
        wrong += measured(status, r"gemv_u4_f16_m8 +448 threads  agrees\n(.*\n)*refused: " + (refused or "none"), "limits", doctor)
    wrong += measured(1, r"gemv +[0-9.]+ s +\d\d+ bytes\nroute .* 0 bytes: REFUSED\nall ", "kernels", scratch / "measured")
    return [why for why in wrong if why]


def measured(status, said, *arguments):
    ran = subprocess.run([sys.executable, "-B", HERE / "measure.py", *arguments], capture_output=True, text=True)
    good = ran.returncode == status and re.search(said, ran.stdout)
    return [] if good else [f"{arguments[0]}: expected status {status} and {said}, found {ran.returncode} and {ran.stdout}{ran.stderr}"]


def planted(folder, scratch):
    """Mistakes, by name: what is said against each of them. Silence is a failure."""
    said = {}

    def compile_text(name, text, system="macos", *more):
        source = scratch / f"{name.replace(' ', '_')}.cc"
        source.write_text(text)
        made = source.with_suffix(".o")
        return made, run(folder / system / "bin/clang++", *FLAGS, "-std=c++20", "-c", source, "-o", made, *more)

    good, wrong = compile_text("nothing wrong", "#include <cfloat>\nfloat most() { return FLT_MAX; }\n")
    said["nothing wrong"] = "" if wrong else "as expected"
    _, said["a missing include"] = compile_text("a missing include", "#include <limits>\nfloat most() { return FLT_MAX; }\n")
    _, said["a call of Linux alone"] = compile_text(
        "a call of Linux alone", "#include <sched.h>\nint cpu() { return sched_getcpu(); }\n")
    linker = [folder / "macos/bin/clang++", "-dynamiclib", "-install_name", "@rpath/libmetal-marlin.0.dylib"]
    out = scratch / "planted.dylib"
    undefined, _ = compile_text("an undefined symbol", 'extern "C" int marlin_nowhere();\nint call() { return marlin_nowhere(); }\n')
    said["an undefined symbol"] = run(*linker, undefined, "-o", out)
    unlisted, _ = compile_text("a symbol that is not listed",
                               'extern "C" void* MTLCopyAllDevicesWithObserver();\nvoid* f() { return MTLCopyAllDevicesWithObserver(); }\n')
    said["a symbol that is not listed"] = run(*linker, unlisted, "-o", out, "-framework", "Metal")
    leaking, _ = compile_text("a leaked export", '#include <cstdlib>\n#include <new>\nvoid* operator new(std::size_t n) { return malloc(n); }\n')
    failed = run(*linker, leaking, good, "-o", out)
    leaks = [] if failed else macho.wrong_library(macho.File(out), "macos", EXPORTS, ROOT)
    said["a leaked export"] = "as expected" if "it exports __Znwm" in leaks else ""
    for system in ("macos", "ios"):
        said[f"a call that is too new ({system})"] = run(
            folder / system / "bin/clang++", *FLAGS, "-fobjc-arc", "-DUNGUARDED", "-c", API / "guards.mm", "-o", scratch / "guards.o")
    listed = {"Metal": {"_OBJC_CLASS_$_MTLNowhere"}, "Foundation": set(), "libobjc": set()}
    said["a class that Apple has not"] = "\n".join(wrong_symbols(listed, {"_OBJC_CLASS_$_MTLNowhere": "Metal"}, Apple()))
    return said


def main():
    folder, trees = pathlib.Path(sys.argv[1]).absolute(), {"macos": sys.argv[2], "ios": sys.argv[3]}
    trees = {system: pathlib.Path(tree).absolute() for system, tree in trees.items()}
    results = {}
    for system, tree in trees.items():
        library = macho.File((tree / "libmetal-marlin.dylib").resolve())
        results[f"library ({system})"] = macho.wrong_library(library, system, EXPORTS, ROOT)
        results[f"shaders ({system})"] = wrong_shaders((tree / "libmetal-marlin.dylib").resolve(), system)
        results[f"Apple's symbols ({system})"] = wrong_symbols(sdk.apple_symbols(system), library.imports(), Apple())
    if "METAL_MARLIN_TESTS:BOOL=ON" in (trees["macos"] / "CMakeCache.txt").read_text():  # in the long form
        results["programs of the tests"] = programs(trees["macos"])
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        results["systems of shaders"] = wrong_targets(scratch)
        results["measures"] = wrong_measures(scratch)
        results["embedded shaders"] = wrong_embedding(folder, trees["macos"], scratch)
        results["installed"] = installed(trees["macos"], scratch / "prefix")
        results |= examples(folder, trees["macos"], scratch)
        for mistake, said in planted(folder, scratch).items():
            results[f"planted: {mistake}"] = [] if said else ["nothing was said against it"]
    for name, wrong in results.items():
        print(f"FAILED {name}: " + "\n  ".join(wrong) if wrong else f"passed {name}")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a Mach-O file says of itself, and what is wrong with it, by the tools of LLVM."""
import re
import subprocess

PLATFORMS = {"macos": ("1", "14.0"), "ios": ("2", "17.0")}
LOADED = {"/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
          "/System/Library/Frameworks/Metal.framework/Versions/A/Metal", "/usr/lib/libobjc.A.dylib",
          "/usr/lib/libc++.1.dylib", "/usr/lib/libSystem.B.dylib"}


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class File:
    def __init__(self, path):
        self.path = path
        commands = re.split(r"^Load command \d+\n", said("llvm-otool-19", "-l", path), flags=re.MULTILINE)[1:]
        self.commands = {}
        for text in commands:
            fields = dict(re.findall(r"^ *(\w+) (\S+)", text, flags=re.MULTILINE))
            self.commands.setdefault(fields["cmd"], []).append(fields)

    def values(self, command, field):
        return [fields[field] for fields in self.commands.get(command, [])]

    def exports(self):
        return set(said("llvm-nm-19", "--extern-only", "--defined-only", "--format=just-symbols", self.path).split())

    def imports(self):
        """{symbol: library}, as the linker found them."""
        lines = said("llvm-nm-19", "-m", "--undefined-only", self.path).splitlines()
        found = (re.search(r" external (\S+) \(from ([^)]+)\)", line) for line in lines)
        return {match.group(1): match.group(2) for match in found if match}

    def wrong_system(self, system):
        found = [(fields["platform"], fields["minos"]) for fields in self.commands.get("LC_BUILD_VERSION", [])]
        return [] if found == [PLATFORMS[system]] else [f"expected the system {PLATFORMS[system]}, found {found}"]

    def wrong_paths(self, folder):
        """Where it was built must not be in what was built."""
        has = str(folder).encode() in self.path.read_bytes()
        return [f"it names the folder of the build, {folder}"] if has else []


def wrong_library(file, system, exports, folder):
    """All that is wrong with the library."""
    wrong = file.wrong_system(system) + file.wrong_paths(folder)
    name = file.values("LC_ID_DYLIB", "name")
    if name != ["@rpath/libmetal-marlin.0.dylib"]:
        wrong.append(f"expected an install name of @rpath, found {name}")
    wrong += [f"it exports {symbol}" for symbol in sorted(file.exports() - exports)]
    wrong += [f"it does not export {symbol}" for symbol in sorted(exports - file.exports())]
    loaded = set(file.values("LC_LOAD_DYLIB", "name"))
    if loaded != LOADED:
        wrong.append(f"expected that it loads {sorted(LOADED)}, found {sorted(loaded)}")
    return wrong

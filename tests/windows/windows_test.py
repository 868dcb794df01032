#!/usr/bin/env python3
"""Runs what a tree has for Windows under Wine, and reads back what its files say.

    windows_test.py TREE WHEEL       TREE is a tree of the preset windows, WHEEL the wheel with its library

Prints "passed NAME" and "FAILED NAME: why". The exit status is 1 where something failed.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
EXPORTS = sorted(re.findall(r"^ +(\w+);$", (ROOT / "src/api/exports.map").read_text(), re.MULTILINE))
# The system's own: every Windows 10 has them.
SYSTEM = re.compile(r"(kernel32|advapi32|api-ms-win-crt-[a-z]+-l1-1-0)\.dll", re.I)
# A script of letters that no code page of Windows has together.
FOLDER = "ü модель 模型"
LARGE = 5 << 30


class Windows:
    def __init__(self, tree, wheel):
        self.tree, self.wheel = pathlib.Path(tree).resolve(), pathlib.Path(wheel).resolve()
        self.bin = self.tree / "bin"
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="metal-marlin-windows-"))

    def run(self, program, *arguments, cwd=ROOT):
        """The exit status and what a program of the tree says; Wine's drive Z is the root folder."""
        ran = subprocess.run([*WINE, program, *map(str, arguments)], capture_output=True, timeout=300, cwd=cwd)
        return ran.returncode, (ran.stdout + ran.stderr).decode().replace("\r\n", "\n")

    def command(self, *arguments):
        return self.run(self.bin / "metal-marlin.exe", *arguments)

    def says(self, text, *arguments, status=0):
        """Runs the command; what is wrong with its status and its words, or nothing."""
        got, said = self.command(*arguments)
        return "" if got == status and text in said else f"{arguments}: status {got}, expected '{text}' in:\n{said}"

    def exports(self):
        said = subprocess.run(["llvm-readobj-19", "--coff-exports", self.bin / "metal-marlin.dll"], check=True, capture_output=True,
                              text=True).stdout
        names = sorted(re.findall(r"Name: (\S+)", said))
        return "" if names == EXPORTS else f"expected {EXPORTS}, found {names}"

    def imports(self):
        for file in ("metal-marlin.dll", "metal-marlin.exe"):
            said = subprocess.run(["llvm-readobj-19", "--coff-imports", self.bin / file], check=True, capture_output=True, text=True).stdout
            foreign = [name for name in re.findall(r"^  Name: (\S+)", said, re.M) if not SYSTEM.fullmatch(name) and name != "metal-marlin.dll"]
            if foreign:
                return f"{file} needs {foreign}, which Windows has not"
        return ""

    def header(self):
        """As Microsoft's compilers read it: clang-cl, with all warnings, in C and C++, and with calls to the DLL."""
        for language in ("/TC", "/TP"):
            for more in ([], ["/DMARLIN_DLL"]):
                source = self.scratch / "header.c"
                source.write_text("#include <metal_marlin/metal_marlin.h>\nint main(void) { return marlin_get_api(MARLIN_ABI_MAJOR) == 0; }\n")
                ran = subprocess.run(["clang-19", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "/clang:-ffreestanding", "/X", "/W4", "/WX",
                                      "/clang:-fsyntax-only", "/clang:-pedantic", f"/I{ROOT}/include", f"/clang:-isystem{RESOURCES}/include",
                                      language, *more, source], capture_output=True, text=True)
                if ran.returncode != 0:
                    return f"{language} {more}: {ran.stderr}"
        return ""

    def examples(self):
        """The programs of examples/README.md that need no POSIX, and what the page says that they print."""
        page = (ROOT / "examples/README.md").read_text()
        blocks = re.findall(r"```sh\nc(c|\+\+) (examples/\S+) [^\n]*\n(?:mkdir written\n)?\./\S+ ([^\n]*)\n```\n\n```text\n(.*?)\n```", page, re.S)
        seen = []
        (self.scratch / "written").mkdir()
        for mode, source, arguments, expected in blocks:
            if "pthread.h" in (ROOT / source).read_text():
                continue
            standard = "-std=c++20" if mode == "++" else "-std=c99"
            program = self.bin / (pathlib.Path(source).name.replace(".", "_") + ".exe")
            subprocess.run([self.tree.parent / f"windows-zig/c{mode}", standard, "-O1", "-DMARLIN_DLL", f"-I{ROOT}/include", ROOT / source,
                            self.tree / "metal-marlin.dll.a", "-o", program], check=True)
            words = re.sub(r"\$\(.*?\)\S*", str(self.bin / "metal-marlin.dll"), arguments).replace("tests/data", str(DATA)).split()
            status, said = self.run(program, *words, cwd=self.scratch)
            shown = re.escape(expected.strip()).replace(r"\.\.\.", r".*?")
            if status != 0 or not re.search(shown, said, re.S):
                return f"{source} {arguments}: status {status}, expected\n{expected}\nfound\n{said}"
            seen.append(pathlib.Path(source).name)
        missing = {"mlp.c", "mlp.cc", "moe.cc", "threads.cc", "plugin.c", "tour.c"} - set(seen)
        return f"the page has no {missing}" if missing else ""

    def describes_the_machine(self):
        return self.says("cpu      ", "doctor", "--no-measure")

    def multiplies_by_all_data(self):
        return self.says("all right", "quickstart", "tests/data")

    def multiplies_without_vectors(self):
        os.environ["METAL_MARLIN_ISA"] = "generic"
        try:
            return self.says("1 right, 0 wrong", "verify", DATA / "marlin-g128")
        finally:
            del os.environ["METAL_MARLIN_ISA"]

    def names_of_every_script(self):
        folder = self.scratch / FOLDER
        shutil.copytree(DATA / "marlin-g128", folder)
        windows = "Z:" + str(folder).replace("/", "\\")
        packed = windows + "\\模型.marlin"
        return (self.says("256 x 256", "inspect", folder) or self.says("1 right, 0 wrong", "verify", windows) or
                self.says("", "pack", windows, "-o", packed) or self.says("256 x 256", "inspect", packed) or
                ("" if (folder / "模型.marlin").exists() else "pack wrote no 模型.marlin") or
                self.says("is there already", "pack", windows, "-o", packed, status=3) or
                self.says("", "pack", windows, "-o", packed, "--force") or
                self.says("", "unpack", windows, "-o", windows + "\\floats") or
                self.says("", "unpack", windows, "-o", windows + "\\floats", "--force"))

    def errors_name_the_file(self):
        return (self.says("none.gguf: cannot open: No such file or directory (MARLIN_E_FILE)", "inspect", self.scratch / "none.gguf", status=3) or
                self.says("expected a .safetensors, .safetensors.index.json, .gguf or .marlin", "inspect", ROOT / "src", status=3))

    def files_above_4_gb(self):
        """A vector of 5 GB, which is a hole, before the tensors of a file: what the file gives is what it gave without."""
        small = DATA / "marlin-g128" / "model.safetensors"
        large = self.scratch / "large" / "model.safetensors"
        large.parent.mkdir()
        for config in (DATA / "marlin-g128").glob("*.json"):
            shutil.copy(config, large.parent)
        data = small.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        for name, tensor in header.items():
            if name != "__metadata__":
                tensor["data_offsets"] = [offset + LARGE for offset in tensor["data_offsets"]]
        text = json.dumps({**header, "model.norm.weight": {"dtype": "F32", "shape": [LARGE // 4], "data_offsets": [0, LARGE]}}).encode()
        with large.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.seek(LARGE, os.SEEK_CUR)
            file.write(data[8 + size:])
        outputs = []
        for model in (small, large):
            outputs.append(self.scratch / f"{model.parent.name}.safetensors")
            why = self.says("", "unpack", model, "-o", outputs[-1])
            if why:
                return why
        return "" if outputs[0].read_bytes() == outputs[1].read_bytes() else "the same layer unpacks to other bytes"

    def finds_the_driver_of_cuda(self):
        """Without a driver the reason is told; one that has every function and no device is asked."""
        why = self.says("no NVIDIA driver: nvcuda.dll: error 126 of Windows", "doctor", "--no-measure")
        if why:
            return why
        names = re.findall(r'"(cu[A-Z]\w+)"', (ROOT / "src/backends/cuda/driver.h").read_text())
        source = self.scratch / "nvcuda.c"
        source.write_text("".join(f"__declspec(dllexport) int {name}(void) {{ return 100; }}\n" for name in names))
        system = pathlib.Path(os.environ["WINEPREFIX"]) / "drive_c/windows/system32"
        driver = system / "nvcuda.dll"
        subprocess.run([self.tree.parent / "windows-zig/cc", "-shared", source, "-o", driver], check=True)
        try:
            return self.says("cuInit: unknown error (100)", "doctor", "--no-measure")
        finally:
            driver.unlink()

    def wheel_has_the_library(self):
        if not self.wheel.name.endswith("-py3-none-win_amd64.whl"):
            return f"{self.wheel.name}: expected a name for win_amd64"
        with zipfile.ZipFile(self.wheel) as wheel:
            binaries = [name for name in wheel.namelist() if name.endswith((".dll", ".so", ".pyd"))]
            if binaries != ["metal_marlin/metal-marlin.dll"]:
                return f"expected one library, found {binaries}"
            same = wheel.read(binaries[0]) == (self.bin / "metal-marlin.dll").read_bytes()
            return "" if same and "metal_marlin/_abi.py" in wheel.namelist() else "the wheel has another library than the tree"


TESTS = [Windows.exports, Windows.imports, Windows.header, Windows.examples, Windows.describes_the_machine, Windows.multiplies_by_all_data,
         Windows.multiplies_without_vectors, Windows.names_of_every_script, Windows.errors_name_the_file, Windows.files_above_4_gb,
         Windows.finds_the_driver_of_cuda, Windows.wheel_has_the_library]
WINE = ["/usr/lib/wine/wine64"]
RESOURCES = subprocess.run(["clang-19", "-print-resource-dir"], check=True, capture_output=True, text=True).stdout.strip()


def main():
    windows, failed = Windows(*sys.argv[1:]), False
    try:
        for test in TESTS:
            why = test(windows)
            failed = failed or bool(why)
            print(f"FAILED {test.__name__}: {why}" if why else f"passed {test.__name__}", flush=True)
    finally:
        shutil.rmtree(windows.scratch)
    sys.exit(failed)


if __name__ == "__main__":
    main()

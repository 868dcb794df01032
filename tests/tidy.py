"""clang-tidy over files, as ./dev lint runs it: several at a time, and none that was clean and has not changed since.

A file is read again when its text, a header that it includes, its flags, the checks or the version of clang-tidy has changed.
CACHE holds, for each file that was clean, the hashes of all that it read. Exit status: 0 clean, 1 complaints.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

# .clang-tidy says why the static analyzer is shallow, and does not read the kernels of one processor.
SHALLOW = ["-Xclang", "-analyzer-config", "-Xclang", "mode=shallow"]
KERNELS = re.compile(r"src/backends/cpu/(x86|arm64)/")


@functools.cache
def hash_of(path):
    try:
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def commands(folder):
    """The compiler's command for each file of a compile database, without its outputs."""
    found = {}
    for entry in json.loads(pathlib.Path(folder, "compile_commands.json").read_text()):
        words = entry.get("arguments") or shlex.split(entry["command"])
        file = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
        while "=" in words[0] or os.path.basename(words[0]) == "ccache":
            words = words[1:]
        kept, skip = [], False
        for word in words:
            skip, dropped = word in ("-o", "-MF", "-MT"), skip or word in ("-c", "-MD", "-o", "-MF", "-MT")
            if not dropped:
                kept.append(word)
        found.setdefault(file, (entry["directory"], kept))
    return found


class Tidy:
    def __init__(self, options):
        self.tool, self.cache = options.tidy, pathlib.Path(options.cache)
        self.database, self.flags = options.database, options.flags
        self.commands = commands(options.database) if options.database else {}
        version = subprocess.run([self.tool, "--version"], check=True, capture_output=True, text=True).stdout
        checks = [line for line in pathlib.Path(".clang-tidy").read_text().splitlines() if not line.startswith("#")]
        self.settings = [version, checks, SHALLOW, KERNELS.pattern]
        self.cache.mkdir(parents=True, exist_ok=True)

    def compiler(self, file):
        """The folder and the command that preprocess a file."""
        if self.database:
            return self.commands[file]
        return ".", ["c++", *(["-x", "c"] if file.endswith(".c") else []), *self.flags, file]

    def entry(self, file):
        key = json.dumps([file, self.settings, self.compiler(file)])
        return self.cache / (hashlib.sha256(key.encode()).hexdigest() + ".json")

    def is_clean(self, file):
        try:
            read = json.loads(self.entry(file).read_text())
        except (OSError, ValueError):
            return False
        return all(hash_of(path) == digest for path, digest in read.items())

    def remember(self, file):
        folder, command = self.compiler(file)
        made = subprocess.run([*command, "-M"], cwd=folder, capture_output=True, text=True)
        if made.returncode != 0:
            return
        paths = made.stdout.partition(":")[2].replace("\\\n", " ").split()
        read = {path: hash_of(path) for path in (os.path.abspath(os.path.join(folder, path)) for path in paths)}
        self.entry(file).write_text(json.dumps(read))

    def complaints(self, file):
        """What clang-tidy says; empty if the file is clean."""
        command = [self.tool, "--quiet", "--warnings-as-errors=*", file]
        if KERNELS.match(file):
            command.append("--checks=-clang-analyzer-*")
        if self.database:
            command += ["-p", self.database, *("--extra-arg=" + word for word in SHALLOW)]
        else:
            command += ["--", *self.flags, *SHALLOW]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            self.remember(file)
            return ""
        # It counts warnings in the headers of others even if all is well.
        lines = (done.stdout + done.stderr).splitlines()
        return "\n".join(line for line in lines if not re.search(r" warnings? generated\.$", line))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidy", required=True, help="the program clang-tidy")
    parser.add_argument("--cache", required=True, help="the folder of what was clean")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("-p", dest="database", help="a folder with compile_commands.json; files that it lacks are left out")
    parser.add_argument("--flags", default="", type=shlex.split, help="without a database, of the compiler")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    tidy, begun = Tidy(options), time.monotonic()
    # Files of another processor are not in this build, and cannot be read with its flags.
    files = [file for file in options.files if not options.database or file in tidy.commands]
    changed = [file for file in files if not tidy.is_clean(file)]
    changed.sort(key=os.path.getsize, reverse=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for said in pool.map(tidy.complaints, changed):
            failed += said != ""
            if said:
                print(said, flush=True)
    print(f"clang-tidy: {len(files)} files, {len(changed)} of them read anew, {failed} with complaints, "
          f"{time.monotonic() - begun:.0f} s", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())

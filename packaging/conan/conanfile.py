"""A recipe for Conan 2, which builds the tree that it lies in:

    conan create packaging/conan --build=missing
    conan create packaging/conan --build=missing -o "&:shared=True" -o "&:tools=True"
"""

import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

TOP = pathlib.Path(__file__).resolve().parents[2]


class MetalMarlin(ConanFile):
    name = "metal-marlin"
    license = "Apache-2.0"
    description = "Multiply by 4-bit weights at the speed of memory"
    topics = ("gemm", "quantization", "inference", "gguf")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "tools": [True, False]}
    default_options = {"shared": False, "fPIC": True, "tools": False}
    implements = ["auto_shared_fpic"]

    def set_version(self):
        header = load(self, str(TOP / "include" / "metal_marlin" / "metal_marlin.h"))
        self.version = ".".join(re.findall(r"^#define MARLIN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.MULTILINE))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE"):
            copy(self, pattern, str(TOP), self.export_sources_folder)
        for folder in ("cmake", "docs", "examples", "include", "pkgconfig", "shaders", "src", "tools"):
            copy(self, "*", str(TOP / folder), str(pathlib.Path(self.export_sources_folder) / folder))

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        # Only sources of the library and the command include these: nothing of them is in the package's interface.
        self.requires("nlohmann_json/[>=3.10 <4]", visible=False)
        if self.options.tools:
            self.requires("cli11/[>=2.1 <3]", visible=False)
            self.requires("fmt/[>=9]", visible=False)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["METAL_MARLIN_TOOLS"] = bool(self.options.tools)
        toolchain.cache_variables["CMAKE_UNITY_BUILD"] = True
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, str(pathlib.Path(self.package_folder) / "licenses"))
        copy(self, "NOTICE", self.source_folder, str(pathlib.Path(self.package_folder) / "licenses"))
        library = pathlib.Path(self.package_folder) / "lib"
        # Conan writes these files for the generator that a consumer chose.
        rmdir(self, str(library / "cmake"))
        rmdir(self, str(library / "pkgconfig"))
        # One of the two libraries, as the option says.
        for file in library.glob("libmetal-marlin.*"):
            if (file.suffix == ".a") == bool(self.options.shared):
                file.unlink()

    def package_info(self):
        self.cpp_info.libs = ["metal-marlin"]
        self.cpp_info.set_property("cmake_file_name", "metal-marlin")
        self.cpp_info.set_property("cmake_target_name", "metal_marlin::metal_marlin")
        self.cpp_info.set_property("pkg_config_name", "metal-marlin")
        if self.settings.os == "Linux" and not self.options.shared:
            self.cpp_info.system_libs = ["dl", "m", "pthread", "stdc++"]
        if self.settings.os == "Macos" and not self.options.shared:
            self.cpp_info.frameworks = ["Foundation", "Metal"]
            self.cpp_info.system_libs = ["c++"]

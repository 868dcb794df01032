"""A library that the system has, under the name that Conan knows it by. Tests alone use it, where no remote is to be reached."""

from conan import ConanFile

TARGETS = {
    "nlohmann_json": ("nlohmann_json::nlohmann_json", []),
    "cli11": ("CLI11::CLI11", []),
    "fmt": ("fmt::fmt", ["fmt"]),
}


class SystemPackage(ConanFile):
    def package_info(self):
        target, libraries = TARGETS[self.name]
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = libraries
        self.cpp_info.set_property("cmake_file_name", target.split("::")[0])
        self.cpp_info.set_property("cmake_target_name", target)

#include "beside.h"

#include <dlfcn.h>

#include <filesystem>

namespace metal_on_cpu {
namespace {

namespace fs = std::filesystem;

const std::string& library_folder() {
  static const std::string folder = [] {
    Dl_info info{};
    std::error_code ignored;
    if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0) return std::string();
    return fs::canonical(info.dli_fname, ignored).parent_path().string();
  }();
  return folder;
}

}  // namespace

const std::string& prelude_path() {
  static const std::string path = library_folder() + kPreludeFolder;
  return path;
}

const std::string& pass_path() {
  static const std::string path = library_folder() + "/metal-on-cpu/pass.so";
  return path;
}

}  // namespace metal_on_cpu

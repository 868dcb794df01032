// The pinned wheel's library, fetched once into the build folder.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace metal_on_cpu::air {

struct Wheel {
  std::string metallib, headers;
  std::string absent;  // why there is none; empty: it is there
};

/// $METAL_ON_CPU_WHEEL, a folder with mlx/lib and mlx/include, or what fetch_wheel.sh leaves in the build folder.
inline const Wheel& wheel() {
  static const Wheel found = [] {
    const char* const given = std::getenv("METAL_ON_CPU_WHEEL");
    const std::string folder = given ? given : METAL_ON_CPU_WHEEL_FOLDER;
    Wheel w{folder + "/mlx/lib/mlx.metallib", folder + "/mlx/include", ""};
    FILE* const process = popen((METAL_ON_CPU_FETCH_WHEEL " '" + folder + "' 2>&1").c_str(), "r");
    std::array<char, 512> text{};
    std::string said;
    while (process && std::fgets(text.data(), text.size(), process)) said += text.data();
    if (!process || pclose(process) != 0) w.absent = said.empty() ? "the wheel cannot be fetched" : said;
    return w;
  }();
  return found;
}

}  // namespace metal_on_cpu::air

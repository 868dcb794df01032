// swift-tools-version: 6.2.1
// The library from its sources, for apps on Apple's systems. On Linux it has the CPU alone, and is there to be tested; a system's
// own library is what bindings/swift links.
// SwiftPM 6.2.1 is the first whose tests and programs find the library of Span on macOS 15.
import PackageDescription

let settings: [CXXSetting] = [
  .headerSearchPath("../include"), .headerSearchPath("."), .headerSearchPath(".."),
]
// What is no source of the compiler's own: lists of files for CMake, tables that sources include, the exports, and Windows' part.
let withList = [
  "api", "backends/cpu", "backends/cpu/arm64", "backends/cpu/x86", "backends/cuda", "backends/gpu", "base", "checkpoints",
  "checkpoints/container", "checkpoints/convert", "checkpoints/recognizers", "core", "formats", "layouts", "sources",
]
let tables = [
  "api/exports.map", "backends/cpu/arm64/kernels.inc", "backends/cpu/arm64/neon_tile.inc", "backends/cpu/expand.inc",
  "backends/cpu/kernels.inc", "backends/cpu/x86/kernels.inc", "backends/cpu/x86/tile/codes.inc",
  "backends/cpu/x86/tile/super.inc", "backends/cuda/kernels.inc",
  "backends/gpu/kernels.inc", "base/files_windows.cc", "base/system_windows.cc", "checkpoints/recognizers/recognizers.inc",
  "layouts/layouts.inc",
]
let sources = [
  "api", "backends/cpu", "backends/cuda", "backends/gpu", "base", "checkpoints", "core", "formats", "layouts", "sources",
]
let exclude = withList.map { "\($0)/CMakeLists.txt" } + tables

#if os(Linux)
  // The JSON library is the system's (nlohmann-json3-dev); Metal is absent.
  let packages: [Package.Dependency] = []
  let needs: [Target.Dependency] = []
  let metal = ["backends/metal/absent.cc"]
  let notMetal: [String] = []
  let linked: [LinkerSetting] = [.linkedLibrary("dl")]
#else
  // The Metal backend: the host in Objective-C++ and the text of the shaders, which Metal compiles at run time.
  let packages: [Package.Dependency] = [.package(url: "https://github.com/nlohmann/json", from: "3.12.0")]
  let needs: [Target.Dependency] = [.product(name: "json", package: "json")]
  let metal = ["backends/metal"]
  let notMetal = ["absent.cc", "CMakeLists.txt"].map { "backends/metal/\($0)" }
  let linked: [LinkerSetting] = [.linkedFramework("Foundation"), .linkedFramework("Metal")]
#endif

let package = Package(
  name: "MetalMarlin",
  platforms: [.macOS(.v14), .iOS(.v17)],
  products: [.library(name: "MetalMarlin", targets: ["MetalMarlin"])],
  dependencies: packages,
  targets: [
    // The top folder is no target's path: SwiftPM would read all of it, folders of builds and their links included.
    .target(
      name: "CMetalMarlin", dependencies: needs, path: "src", exclude: exclude + notMetal, sources: sources + metal,
      publicHeadersPath: "swift", cxxSettings: settings, linkerSettings: linked),
    .target(name: "MetalMarlin", dependencies: ["CMetalMarlin"], path: "bindings/swift/Sources/MetalMarlin"),
    .testTarget(
      name: "MetalMarlinTests", dependencies: ["MetalMarlin", "CMetalMarlin"], path: "bindings/swift/Tests/MetalMarlinTests"),
  ],
  cxxLanguageStandard: .cxx20
)

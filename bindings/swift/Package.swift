// swift-tools-version: 6.2.1
import PackageDescription

let package = Package(
  name: "metal-marlin",
  platforms: [.macOS(.v14)],
  products: [.library(name: "MetalMarlin", targets: ["MetalMarlin"])],
  targets: [
    .systemLibrary(
      name: "CMetalMarlin", pkgConfig: "metal-marlin",
      providers: [.apt(["libmetal-marlin-dev"]), .brew(["metal-marlin"])]),
    .target(name: "MetalMarlin", dependencies: ["CMetalMarlin"]),
    .executableTarget(name: "hello", dependencies: ["MetalMarlin"]),
    .executableTarget(name: "moe", dependencies: ["MetalMarlin"]),
    .testTarget(name: "MetalMarlinTests", dependencies: ["MetalMarlin", "CMetalMarlin"]),
  ]
)

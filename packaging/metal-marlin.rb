# typed: strict
# frozen_string_literal: true

# A formula for Homebrew, which takes formulae from taps alone:
#   brew tap-new local/metal-marlin
#   cp packaging/metal-marlin.rb "$(brew --repository local/metal-marlin)/Formula/"
#   HOMEBREW_METAL_MARLIN_GIT="$PWD" brew install --HEAD local/metal-marlin/metal-marlin
# A release fills in its archive and the address of a page. Until there is one, --HEAD takes a clone, whose address this variable
# names (Homebrew hides variables of other prefixes from formulae), and `brew audit` misses the page alone.
class MetalMarlin < Formula
  desc "Multiply by 4-bit weights at the speed of memory"
  homepage "https://metal-marlin.invalid/"
  license "Apache-2.0"
  head ENV.fetch("HOMEBREW_METAL_MARLIN_GIT", "file:///HOMEBREW_METAL_MARLIN_GIT-names-a-clone"), using: :git, branch: "main"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :test
  depends_on "fmt"
  depends_on macos: :sonoma

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    pkgshare.install "examples/host.c", "examples/mlp.c"
  end

  test do
    (testpath/"test.c").write <<~C
      #include <metal_marlin/metal_marlin.h>
      int main(void) { return marlin_get_api(MARLIN_ABI_MAJOR) ? 0 : 1; }
    C
    flags = shell_output("pkgconf --cflags --libs metal-marlin").split
    system ENV.cc, "test.c", "-o", "test", *flags, "-Wl,-rpath,#{lib}"
    system "./test"
    assert_match version.to_s, shell_output("#{bin}/metal-marlin --version") if build.stable?
  end
end

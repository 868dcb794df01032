#include "mlx_times.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"

namespace metal_marlin::tools {
namespace {

using nlohmann::ordered_json;

/// Python of two arguments and more: N, K, seconds, then values of M. Prints one line of JSON.
constexpr const char* kScript = R"py(
import json, sys, time
n, k, seconds, rows = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), [int(m) for m in sys.argv[4:]]
try:
    import mlx.core as mx
except Exception as error:
    print(json.dumps({"why_not": f"{type(error).__name__}: {error}"}))
    sys.exit()
def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
def median_time(call):
    first, times, end = timed(call), [], time.perf_counter() + seconds
    if first > LONG:
        return first
    while len(times) < 3 or time.perf_counter() < end:
        times.append(timed(call))
    return sorted(times)[len(times) // 2]
LONG = 1.0  # seconds of one product, after which more rows are not tried
products, copies = [], max(1, min(64, 400_000_000 * 2 // (n * k)))
for name, mode in ("int4", "affine"), ("mxfp4", "mxfp4"):
    try:
        weights = [mx.quantize(mx.random.normal((n, k)).astype(mx.float16), group_size=32, bits=4, mode=mode) for _ in range(copies)]
        mx.eval(weights)
        for m in rows:
            x, turn = mx.random.normal((m, k)).astype(mx.float16), [0]
            mx.eval(x)
            def product():
                turn[0] = (turn[0] + 1) % copies
                mx.eval(mx.quantized_matmul(x, *weights[turn[0]], transpose=True, group_size=32, bits=4, mode=mode))
            products.append({"format": name, "M": m, "seconds": median_time(product)})
            if products[-1]["seconds"] > LONG:
                break
    except Exception as error:
        products.append({"format": name, "why_not": f"{type(error).__name__}: {error}"})
print(json.dumps({"version": mx.__version__, "device": str(mx.default_device()), "products": products}))
)py";

/// A word for the shell that stands for exactly this text.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

struct Close {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

std::string output_of(const std::string& command) {
  // The user names the program. NOLINTNEXTLINE(bugprone-command-processor)
  const std::unique_ptr<std::FILE, Close> pipe(popen(command.c_str(), "r"));
  std::string text;
  std::array<char, 4096> part;
  while (pipe != nullptr) {
    const size_t read = std::fread(part.data(), 1, part.size(), pipe.get());
    if (read == 0) break;
    text.append(part.data(), read);
  }
  return text;
}

}  // namespace

ordered_json mlx_times(const MlxProducts& products) {
  if (products.python.empty()) return {{"why_not", "no Python was to be asked"}};
  std::fflush(stdout);
  const std::string text =
      output_of(fmt::format("{} -c {} {} {} {} 1 8 32 64 512 2>/dev/null", quoted(products.python),
                            quoted(kScript), products.n, products.k, products.seconds));
  ordered_json found = ordered_json::parse(text, nullptr, false);
  if (found.is_object()) return found;
  return {{"why_not", fmt::format("{} cannot be run, or ended early", products.python)}};
}

}  // namespace metal_marlin::tools

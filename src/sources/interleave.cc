#include "sources/interleave.h"

#include <utility>

#include "formats/format_table.h"

namespace metal_marlin {
namespace {

class InterleavedSource final : public WrappedSource {
 public:
  explicit InterleavedSource(std::unique_ptr<WeightSource> source)
      : WrappedSource(std::move(source)) {
    meta_.gate_up_interleaved = true;
  }
  void narrow(int64_t first, int64_t count) override {
    WrappedSource::narrow(first, count);
    meta_.gate_up_interleaved = true;
  }
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_interleaved(std::unique_ptr<WeightSource> source) {
  auto interleaved = std::make_unique<InterleavedSource>(std::move(source));
  MARLIN_RETURN_IF_ERROR(check_meta(interleaved->meta()));
  return std::unique_ptr<WeightSource>(std::move(interleaved));
}

}  // namespace metal_marlin

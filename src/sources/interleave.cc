#include "sources/interleave.h"

#include <utility>

#include "formats/format_table.h"

namespace metal_marlin {
namespace {

class InterleavedSource final : public WeightSource {
 public:
  explicit InterleavedSource(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {
    meta_ = source_->meta();
    meta_.gate_up_interleaved = true;
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    return source_->read(first, count, out);
  }
  int64_t column_unit() const override { return source_->column_unit(); }
  void narrow(int64_t first, int64_t count) override {
    source_->narrow(first, count);
    meta_ = source_->meta();
    meta_.gate_up_interleaved = true;
  }

 private:
  std::unique_ptr<WeightSource> source_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_interleaved(std::unique_ptr<WeightSource> source) {
  auto interleaved = std::make_unique<InterleavedSource>(std::move(source));
  MARLIN_RETURN_IF_ERROR(check_meta(interleaved->meta()));
  return std::unique_ptr<WeightSource>(std::move(interleaved));
}

}  // namespace metal_marlin

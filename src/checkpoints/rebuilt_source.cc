#include "checkpoints/rebuilt_source.h"

#include <mutex>
#include <utility>
#include <vector>

#include "formats/format_table.h"

namespace metal_marlin {
namespace {

class RebuiltSource final : public WeightSource {
 public:
  RebuiltSource(SourceMaker make, const WeightSource& first)
      : make_(std::move(make)), column_unit_(first.column_unit()) {
    meta_ = first.meta();
    warning_ = first.warning();
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_ASSIGN(const std::shared_ptr<WeightSource> source, take());
    MARLIN_RETURN_IF_ERROR(source->read(first, count, out));
    const std::lock_guard lock(mutex_);
    rows_read_ += count;
    if (rows_read_ < meta_.n) return {};
    rows_read_ = 0;
    source_.reset();
    return {};
  }
  int64_t column_unit() const override { return column_unit_; }
  void narrow(int64_t first, int64_t count) override {
    narrowed_.push_back({first, count});
    narrow_columns(meta_, first, count);
    source_.reset();
  }

 private:
  struct Columns {
    int64_t first, count;
  };

  Result<std::shared_ptr<WeightSource>> take() const {
    const std::lock_guard lock(mutex_);
    if (source_ != nullptr) return source_;
    MARLIN_ASSIGN(std::shared_ptr<WeightSource> source, make_());
    for (const Columns& columns : narrowed_) source->narrow(columns.first, columns.count);
    source_ = source;
    return source;
  }

  const SourceMaker make_;
  const int64_t column_unit_;
  std::vector<Columns> narrowed_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<WeightSource> source_;
  mutable int64_t rows_read_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_rebuilt(SourceMaker make) {
  MARLIN_ASSIGN(const auto first, make());
  return std::unique_ptr<WeightSource>(std::make_unique<RebuiltSource>(std::move(make), *first));
}

}  // namespace metal_marlin

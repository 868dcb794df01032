#include "sources/watch.h"

#include <utility>

namespace metal_marlin {
namespace {

class WatchedSource final : public WeightSource {
 public:
  WatchedSource(std::unique_ptr<WeightSource> source, Watch& watch)
      : source_(std::move(source)), watch_(watch) {
    meta_ = source_->meta();
    watch_.total += static_cast<uint64_t>(meta_.n) * static_cast<uint64_t>(meta_.k);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_RETURN_IF_ERROR(source_->read(first, count, out));
    watch_.done.fetch_add(static_cast<uint64_t>(count) * static_cast<uint64_t>(meta_.k),
                          std::memory_order_relaxed);
    return std::this_thread::get_id() == watch_.caller ? watch_.report() : Status();
  }

 private:
  std::unique_ptr<WeightSource> source_;
  Watch& watch_;
};

}  // namespace

Status Watch::report() const {
  if (progress(user, done.load(std::memory_order_relaxed), total) == 0) return {};
  return Status::error(MARLIN_E_CANCELLED, "desc->progress asked to stop");
}

std::unique_ptr<WeightSource> make_watched(std::unique_ptr<WeightSource> source, Watch& watch) {
  return std::make_unique<WatchedSource>(std::move(source), watch);
}

}  // namespace metal_marlin

// A stream whose scratch is what marlin_prepare asks for, against an inaccessible page: what every test that brings scratch
// uses.
#pragma once

#include "guarded.h"
#include "metal_marlin/metal_marlin.h"
#include "test.h"

namespace guarded {

class Stream {
 public:
  /// For `product` with up to max_m rows of A (with routing: tokens). The scratch may be a few bytes longer.
  Stream(marlin_context* context, const marlin_gemm_desc& product, int64_t max_m, Edge edge = Edge::end, size_t more = 0) {
    const marlin_gemm_desc* const products[] = {&product};
    uint64_t bytes = 0;
    EXPECT_EQ(marlin_prepare(nullptr, products, 1, max_m, &bytes, nullptr), MARLIN_OK);
    scratch_ = Memory(bytes + more, edge);
    marlin_stream_desc desc{};
    desc.struct_size = sizeof desc;
    if (bytes != 0) desc.scratch = {scratch_.data(), 0, 1, static_cast<int64_t>(bytes + more), 0, MARLIN_U8, MARLIN_MEM_HOST};
    EXPECT_EQ(marlin_stream_create(context, &desc, &stream_, nullptr), MARLIN_OK);
  }
  ~Stream() { marlin_stream_destroy(stream_); }
  Stream(const Stream&) = delete;
  marlin_stream* get() const { return stream_; }

 private:
  Memory scratch_;
  marlin_stream* stream_ = nullptr;
};

}  // namespace guarded

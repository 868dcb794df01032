// A backend of the device: computes a graph on the threads of ggml's CPU backend, with the
// library's products in the place of ggml's.
#pragma once

#include <metal_marlin/metal_marlin.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "file_rows.h"
#include "host.h"
#include "products.h"
#include "team.h"

namespace marlin_ggml {

/// One graph at a time. Between graphs, any thread may use it.
class Backend {
 public:
  /// NULL, with a line in the log, on failure. `buffers` is the type of packed weights.
  static std::unique_ptr<Backend> create(marlin_context* context,
                                         ggml_backend_buffer_type_t buffers, int threads,
                                         marlin_compute compute);
  Backend(const Backend&) = delete;

  ggml_status compute(ggml_cgraph* graph);

  void set_threads(int threads) { host_->set_threads(threads); }
  void set_compute(marlin_compute compute) { products_.set_compute(compute); }
  void set_abort_callback(ggml_abort_callback callback, void* user);

 private:
  /// A node that is computed here: a product by the library, or rows of a file. While ggml's CPU
  /// backend runs the graph, the node is an operation that calls back here.
  struct Product {
    Backend* backend = nullptr;
    ggml_tensor* node = nullptr;
    ggml_tensor original{};
    std::vector<ggml_tensor*> others;  // later nodes that the same call computes
    std::vector<ggml_tensor> other_originals;
    std::array<int32_t, GGML_MAX_OP_PARAMS / sizeof(int32_t)> call{};  // of the callback
    Team team;
  };
  using Stream = std::unique_ptr<marlin_stream, void (*)(marlin_stream*)>;
  Backend(marlin_stream* stream, std::unique_ptr<Host> host, ggml_backend_buffer_type_t buffers);

  PackedBuffer* lasting(const ggml_tensor& tensor) const;
  void note_written(ggml_cgraph* graph);
  void lay_out_sources(const ggml_tensor& node) const;
  bool has_weights(const ggml_tensor& product) const;
  void add_product();
  void take(ggml_tensor& node, size_t index);
  void take_others(ggml_cgraph* graph, int at, Product& product);
  void give_back(size_t count);
  void run(const Product& product) noexcept;

  Stream stream_;
  std::unique_ptr<Host> host_;
  ggml_backend_buffer_type_t buffers_;
  Products products_;
  FileRows file_rows_;
  std::deque<Product> taken_;  // made once, used by graph after graph
  ggml_op callback_op_ = GGML_OP_NONE;
  // Written by the thread that leads a product, read between nodes by the one that asks whether to
  // stop.
  std::atomic<ggml_status> status_{GGML_STATUS_SUCCESS};
  ggml_abort_callback stop_ = nullptr;
  void* stop_user_ = nullptr;
};

}  // namespace marlin_ggml

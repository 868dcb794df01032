#include "backend.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "log.h"

namespace marlin_ggml {
namespace {

/// Whether a node reads and writes elements, and does not only name some that there are.
bool moves_data(const ggml_tensor& node) {
  return node.op != GGML_OP_NONE && node.op != GGML_OP_VIEW && node.op != GGML_OP_RESHAPE &&
         node.op != GGML_OP_PERMUTE && node.op != GGML_OP_TRANSPOSE && !ggml_is_empty(&node);
}

bool overlap(const ggml_tensor& a, const ggml_tensor& b) {
  const auto *begin = static_cast<const char*>(a.data), *other = static_cast<const char*>(b.data);
  return begin < other + ggml_nbytes(&b) && other < begin + ggml_nbytes(&a);
}

/// Whether the product at node `later` may be computed with the one at node `at`: until its turn,
/// nobody needs the memory of its result for anything else, and its activations stay as they are.
bool may_run_at(ggml_cgraph* graph, int at, int later) {
  const ggml_tensor& product = *ggml_graph_node(graph, later);
  for (int i = at; i < later; ++i) {
    const ggml_tensor& node = *ggml_graph_node(graph, i);
    if (!moves_data(node)) continue;
    if (overlap(node, product) || overlap(node, *product.src[1])) return false;
    for (const ggml_tensor* source : node.src) {
      if (source != nullptr && overlap(*source, product)) return false;
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<Backend> Backend::create(marlin_context* context,
                                         ggml_backend_buffer_type_t buffers, int threads,
                                         marlin_compute compute) {
  auto error = metal_marlin::make<marlin_error>();
  marlin_stream* stream = nullptr;
  if (marlin_stream_create(context, nullptr, &stream, &error) != MARLIN_OK) {
    log(GGML_LOG_LEVEL_ERROR, "%s", error.message);
    return nullptr;
  }
  Stream owned(stream, marlin_stream_destroy);
  std::unique_ptr<Host> host = Host::create(threads);
  if (host == nullptr) return nullptr;
  std::unique_ptr<Backend> backend(new Backend(owned.release(), std::move(host), buffers));
  backend->set_compute(compute);
  return backend;
}

Backend::Backend(marlin_stream* stream, std::unique_ptr<Host> host,
                 ggml_backend_buffer_type_t buffers)
    : stream_(stream, marlin_stream_destroy),
      host_(std::move(host)),
      buffers_(buffers),
      products_(stream) {
  // A product that failed stops the graph: what follows would read results that are not there.
  host_->set_abort_callback(
      [](void* self) {
        const auto& backend = *static_cast<Backend*>(self);
        return backend.status_.load(std::memory_order_relaxed) != GGML_STATUS_SUCCESS ||
               (backend.stop_ != nullptr && backend.stop_(backend.stop_user_));
      },
      this);
}

void Backend::set_abort_callback(ggml_abort_callback callback, void* user) {
  stop_ = callback;
  stop_user_ = user;
}

/// Makes one more Product, with the parameters that ggml gives an operation of the host's. Their
/// layout is ggml's own, so a tensor is made to copy them from.
void Backend::add_product() {
  taken_.emplace_back();
  Product& product = taken_.back();
  product.backend = this;
  alignas(std::max_align_t) char memory[2048];
  ggml_context* context = ggml_init({sizeof memory, memory, true});
  if (context == nullptr) throw std::bad_alloc();
  const ggml_tensor* call = ggml_custom_4d(
      context, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
      [](ggml_tensor*, int thread, int, void* user) {
        Product& self = *static_cast<Product*>(user);
        if (thread != 0) return self.team.help();
        self.team.lead([&self] { self.backend->run(self); });
      },
      GGML_N_TASKS_MAX, &product);
  std::memcpy(product.call.data(), call->op_params, sizeof call->op_params);
  callback_op_ = call->op;
  ggml_free(context);
}

void Backend::take(ggml_tensor& node, size_t index) {
  if (index == taken_.size()) add_product();
  Product& product = taken_[index];
  product.node = &node;
  product.original = node;
  product.others.clear();
  product.other_originals.clear();
  product.team.open();
  node.op = callback_op_;
  std::memcpy(node.op_params, product.call.data(), sizeof node.op_params);
}

/// Gives the product at node `at` those later ones that share its activations, as the keys and
/// values of a layer share those of its queries: they are prepared once for all.
void Backend::take_others(ggml_cgraph* graph, int at, Product& product) {
  constexpr int kFarthest = 16;
  const int end = std::min(ggml_graph_n_nodes(graph), at + kFarthest);
  for (int i = at + 1; i < end; ++i) {
    ggml_tensor& node = *ggml_graph_node(graph, i);
    if (!moves_data(node) || !is_product(node, buffers_) ||
        !share_activations(product.original, node) || !has_weights(node) ||
        !may_run_at(graph, at, i))
      continue;
    product.others.push_back(&node);
    product.other_originals.push_back(node);
  }
  for (ggml_tensor* other : product.others) other->op = GGML_OP_NONE;  // the host passes over it
}

void Backend::give_back(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Product& product = taken_[i];
    for (ggml_tensor* other : product.others) other->op = GGML_OP_MUL_MAT;
    product.node->op = product.original.op;
    std::memcpy(product.node->op_params, product.original.op_params,
                sizeof product.node->op_params);
  }
}

void Backend::run(const Product& product) noexcept {
  ggml_status status;
  try {
    status = product.original.op == GGML_OP_GET_ROWS
                 ? file_rows_.read(product.original)
                 : products_.compute(product.original, product.other_originals);
  } catch (const std::bad_alloc&) {
    log(GGML_LOG_LEVEL_ERROR, "node '%s': no memory for activations", product.original.name);
    status = GGML_STATUS_ALLOC_FAILED;
  }
  if (status != GGML_STATUS_SUCCESS) status_.store(status, std::memory_order_relaxed);
}

/// A buffer whose tensors last from graph to graph; NULL for all others.
PackedBuffer* Backend::lasting(const ggml_tensor& tensor) const {
  const ggml_backend_buffer_t buffer = buffer_of(tensor);
  if (buffer == nullptr || buffer->buft != buffers_ ||
      buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE)
    return nullptr;
  return &packed_buffer(buffer);
}

void Backend::note_written(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor& node = *ggml_graph_node(graph, i);
    if (PackedBuffer* buffer = moves_data(node) ? lasting(node) : nullptr)
      buffer->note_written(node);
  }
}

/// ggml's CPU backend reads the sources of a node where they lie.
void Backend::lay_out_sources(const ggml_tensor& node) const {
  for (const ggml_tensor* source : node.src) {
    if (PackedBuffer* buffer = source != nullptr ? lasting(*source) : nullptr)
      buffer->lay_out(*source);
  }
}

/// Whether the first source of a product is a matrix that lasts and stays as it is.
bool Backend::has_weights(const ggml_tensor& product) const {
  PackedBuffer* buffer = lasting(*product.src[0]);
  return buffer != nullptr && !buffer->is_written(*product.src[0]);
}

ggml_status Backend::compute(ggml_cgraph* graph) {
  status_ = GGML_STATUS_SUCCESS;
  size_t count = 0;
  ggml_status status = GGML_STATUS_ALLOC_FAILED;
  try {
    note_written(graph);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      ggml_tensor& node = *ggml_graph_node(graph, i);
      if (!moves_data(node)) continue;
      if (FileRows::takes(node)) {
        take(node, count++);
        continue;
      }
      if (!is_product(node, buffers_) || !has_weights(node)) {
        lay_out_sources(node);
        continue;
      }
      take(node, count);
      take_others(graph, i, taken_[count++]);
    }
    status = host_->compute(graph);
  } catch (const std::bad_alloc&) {
    log(GGML_LOG_LEVEL_ERROR, "no memory for a graph");
  }
  give_back(count);
  const ggml_status failed = status_;
  return failed != GGML_STATUS_SUCCESS ? failed : status;
}

}  // namespace marlin_ggml

#include "counted_experts.h"

#include <algorithm>
#include <climits>
#include <memory>

#include "api/context.h"
#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/kernels.h"
#include "kernels/formats_under_test.h"
#include "kernels/mixture.h"
#include "tools/router.h"

namespace shaders {
namespace {

namespace mm = metal_marlin;
using metal_on_cpu::Counters;
using testing::AssertionFailure;
using testing::AssertionResult;

constexpr int64_t kWidth = 2;  // of an activation
constexpr uint64_t kSeed = 11;

double ratio_or_zero(uint64_t a, uint64_t b) { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }
uint64_t u(int64_t x) { return static_cast<uint64_t>(x); }

const trial::Kind& kind_of(const std::string& name) {
  for (const trial::Kind& kind : trial::kKinds)
    if (name == kind.name) return kind;
  ADD_FAILURE() << "there is no kind " << name;
  return trial::kKinds[0];
}

std::vector<int32_t> ids_of(const ExpertCase& c) {
  if (c.routes == Routes::last) return std::vector<int32_t>(static_cast<size_t>(c.tokens * c.top_k), int32_t(c.experts - 1));
  std::vector<int32_t> ids = mm::tools::Router(c.experts, c.skew, kSeed).draw(c.tokens, c.top_k);
  const int32_t nowhere[] = {-1, static_cast<int32_t>(c.experts), INT32_MAX, INT32_MIN};
  for (size_t i = 0; c.routes == Routes::outside && i < ids.size(); i += 3) ids[i] = nowhere[i / 3 % std::size(nowhere)];
  return ids;
}

/// A context on the bed, on which trials run while it lives.
class Bed {
 public:
  Bed(const device_test::TestbedOptions& options, const std::string& kernel) {
    mm::BackendOptions with;
    with.threads = 1;
    with.kernel = kernel;
    auto made = mm::gpu::make_gpu_backend(std::make_shared<device_test::TestbedDevice>(options), with, {.probe = false});
    if (!made.ok()) return;
    context_ = new marlin_context(MARLIN_BACKEND_METAL, made.take(), {});
    trial::use_context(context_);
  }
  ~Bed() {
    trial::use_context(nullptr);
    marlin_context_destroy(context_);
  }
  Bed(const Bed&) = delete;

 private:
  marlin_context* context_ = nullptr;
};

/// The row of kernels.inc that a kernel of this name is made of.
const mm::gpu::ProductKernel* row_of(const std::string& name) {
  for (const mm::gpu::ProductKernel& kernel : mm::gpu::simdgroup_policy().kernels)
    for (int codes = 0; codes < mm::gpu::kKernelCodes; ++codes)
      for (int activation = 0; activation < mm::gpu::kActivationKinds; ++activation)
        if (name == kernel.name(static_cast<mm::gpu::KernelCodes>(codes), static_cast<mm::gpu::ActivationKind>(activation)))
          return &kernel;
  return nullptr;
}

bool is_product(const std::string& name) { return row_of(name) != nullptr; }

/// 64-byte lines of all buffers, counted once for each instruction of a simdgroup.
uint64_t lines(const Counters& c) {
  uint64_t all = 0;
  for (const auto& [index, buffer] : c.buffers) all += buffer.simdgroup_lines;
  return all;
}

uint64_t read(const Counters& c, int buffer) {
  const auto found = c.buffers.find(buffer);
  return found == c.buffers.end() ? 0 : found->second.bytes_read;
}

/// Rows that a kernel multiplies of a tile that has so many: eights of them or, with tiles of less than eight, as many as are
/// left when the tile has been halved while half of it has room for them.
int64_t multiplied(int64_t rows, int64_t tile_rows) {
  if (rows == 0) return 0;
  if (tile_rows >= 8) return (rows + 7) / 8 * 8;
  while (rows <= tile_rows / 2) tile_rows /= 2;
  return tile_rows;
}

void count_routes(const std::vector<int32_t>& ids, int64_t experts, int64_t tile_rows, CountedExperts& out) {
  std::vector<int64_t> rows(static_cast<size_t>(experts));
  for (const int32_t id : ids)
    if (id >= 0 && id < experts) ++rows[static_cast<size_t>(id)];
  for (const int64_t of_expert : rows) {
    out.rows += of_expert;
    out.multiplied += of_expert / tile_rows * tile_rows + multiplied(of_expert % tile_rows, tile_rows);
    out.distinct += of_expert != 0;
    out.items += (of_expert + tile_rows - 1) / tile_rows;
  }
}

/// What the goals of a product are measured by.
void judge(const ExpertCase& c, const mm::gpu::ProductKernel& kernel, CountedExperts& out) {
  const Counters product = out.of(out.kernel), route = out.of("route"), finish = out.of("finish"),
                 prepare = out.of(c.int8 ? "quantize" : "gather");
  const auto &codes = product.buffers.at(MARLIN_BUFFER_CODES), &scales = product.buffers.at(MARLIN_BUFFER_SCALES),
             &a = product.buffers.at(MARLIN_BUFFER_A);
  const uint64_t asked = codes.bytes_read + scales.bytes_read, items = u(out.items), distinct = u(out.distinct);
  const uint64_t width = c.int8 ? 1 : kWidth, row = u(kExpertK) * width;
  const uint64_t sums = u(out.rows * kExpertN) * sizeof(float);
  const bool prepares = c.int8 || c.act_order;
  const uint64_t prepared_rows = u(c.act_order ? out.rows : c.tokens);
  const auto fma = product.operations.find("float fma");
  const uint64_t fmas = fma == product.operations.end() ? 0 : fma->second;
  const uint64_t products = u(out.multiplied * kExpertN * kExpertK);
  std::optional<double> once, most_fmas, once_by_route;
  if (u(c.tokens * c.top_k) > kFewRoutedRows || !out.kernel.starts_with("gemv")) once_by_route = 1;
  if (out.kernel.starts_with("gemv_fp4")) most_fmas = 1.10;
  if (items == distinct) once = 1.10;
  const uint64_t weight_lines = codes.simdgroup_lines + scales.simdgroup_lines;
  const auto once_an_item = [&](const metal_on_cpu::BufferCounters& b) {
    return ratio_or_zero(b.simdgroup_lines * distinct, b.unique_lines * items);
  };
  const uint64_t written = prepares ? prepare.buffers.at(MARLIN_BUFFER_QUANTIZED).bytes_written : lines(prepare);
  out.quantities = {
      {"codes", ratio_or_zero(codes.bytes_read, items * out.code_bytes), 1, Goal::exactly},
      {"+ scales", ratio_or_zero(asked, items * out.packed_bytes), 1.10, Goal::at_most},
      {"over experts", ratio_or_zero(asked, distinct * out.packed_bytes), once, Goal::at_most},
      {"code lines", once_an_item(codes), 1, Goal::exactly},
      {"scale lines", once_an_item(scales), 1, Goal::exactly},
      {"A lines", ratio_or_zero(a.simdgroup_lines * 64, u(out.rows) * row) / (kExpertN / 128.0), {}, Goal::at_most},
      {"rows", ratio_or_zero(u(out.multiplied), u(out.rows)), {}, Goal::at_most},
      {"MMAs", ratio_or_zero(512 * product.matrix_multiplies, products),
       (kernel.features & mm::gpu::kSimdgroupMatrix) != 0 ? 1 : 0, Goal::exactly},
      {"FMAs", ratio_or_zero(fmas, products), most_fmas, Goal::at_most},
      {"prepared", ratio_or_zero(written, prepared_rows * row), prepares ? 1 : 0, Goal::exactly},
      {"ids", ratio_or_zero(read(route, MARLIN_BUFFER_IDS), u(c.tokens * c.top_k) * 4), once_by_route, Goal::exactly},
      {"written", ratio_or_zero(product.buffers.at(MARLIN_BUFFER_PARTIALS).bytes_written, sums), 1, Goal::exactly},
      {"sums", ratio_or_zero(read(finish, MARLIN_BUFFER_PARTIALS), sums), 1, Goal::exactly},
      {"route", ratio_or_zero(lines(route), weight_lines), {}, Goal::at_most},
      {"finish", ratio_or_zero(lines(finish), weight_lines), {}, Goal::at_most},
  };
}

}  // namespace

void PrintTo(const ExpertCase& c, std::ostream* out) {
  *out << c.weights << " T " << c.tokens << " top-k " << c.top_k << " E " << c.experts << " skew " << c.skew << " routes "
       << static_cast<int>(c.routes) << (c.int8 ? " int8" : "") << (c.act_order ? " act-order" : "");
}

Counters CountedExperts::of(const std::string& prefix) const {
  Counters found;
  int times = 0;
  for (const auto& [name, counters] : dispatches) {
    if (!name.starts_with(prefix)) continue;
    found = counters;
    ++times;
  }
  EXPECT_LE(times, 1) << prefix;
  return found;
}

AssertionResult count(const ExpertCase& product, CountedExperts& out) {
  device_test::TestbedOptions options;
  options.seed = 3;
  options.tensor = product.tensor;
  options.changes = product.changes;
  options.counted = [&](const std::string& kernel, const Counters& counters) { out.dispatches.emplace_back(kernel, counters); };
  const Bed bed(options, product.kernel);
  const trial::Kind& kind = kind_of(product.weights);
  trial::Case c = trial::case_of(kind, product.int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT, 1, kExpertN, kExpertK);
  c.a_type = MARLIN_F16;
  if (product.act_order) c.order = trial::Order::shuffled;
  const std::vector<int32_t> ids = ids_of(product);
  trial::Mixture mixture(c, {product.tokens, product.experts, product.top_k, trial::Pick::random, false, MARLIN_F32}, ids);
  if (mixture.pack(1) != MARLIN_OK) return AssertionFailure() << "packing";
  AssertionResult step = mixture.run();
  if (step) step = mixture.check();
  if (!step) return step;
  for (const auto& [name, counters] : out.dispatches)
    if (is_product(name)) out.kernel = name;
  const mm::gpu::ProductKernel* const kernel = row_of(out.kernel);
  if (kernel == nullptr) return AssertionFailure() << "no product ran";
  count_routes(ids, product.experts, kernel->rows, out);
  out.code_bytes = u(kExpertN * kExpertK * oracle::code_bits(c.format) / 8);
  out.packed_bytes =
      out.code_bytes + u(kExpertN * (kExpertK / c.group) * static_cast<int64_t>(metal_marlin::scale_bytes(c.scale_type)));
  judge(product, *kernel, out);
  return step;
}

}  // namespace shaders

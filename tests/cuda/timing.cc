// The race of the CUDA backend: products of quantized weights beside cuBLAS's of 16-bit weights and a kernel that only reads as
// many bytes. Prints a table, and checks what it times. No test: what it says depends on the machine. --help says more.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"
#include "oracle.h"
#include "timing_check.h"
#include "timing_cublas.h"
#include "timing_device.h"
#include "timing_operands.h"
#include "timing_report.h"

namespace {

namespace mm = metal_marlin;
using namespace timing;

struct Options {
  std::string read_floor, json;
  std::vector<const Shape*> shapes;
  std::vector<const Format*> formats;
  std::vector<int64_t> rows = {1, 8, 16, 64, 128, 256, 512, 2048};
  std::vector<std::string> cublas;
  marlin_dtype activations = MARLIN_BF16;
  bool cool = false;
  int rounds = 11;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// The median of numerator[i] over denominator[i].
double median_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator) {
  std::vector<double> ratios;
  for (size_t i = 0; i < numerator.size(); ++i) ratios.push_back(numerator[i] / denominator[i]);
  return median(ratios);
}

/// The kernel that only reads (read_floor.cu).
class ReadFloor {
 public:
  ReadFloor(const Device& device, const std::string& path) : device_(device), result_(device, sizeof(uint32_t)) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
    device_.check(device_.driver().load_module(&module_, image.data()), "cuModuleLoadData");
    device_.check(device_.driver().function(&function_, module_, "read_floor"), "cuModuleGetFunction");
  }
  ~ReadFloor() { static_cast<void>(device_.driver().unload_module(module_)); }
  ReadFloor(const ReadFloor&) = delete;
  ReadFloor& operator=(const ReadFloor&) = delete;

  void read(DevicePtr from, size_t bytes) const {
    unsigned long long count = bytes / 16, to = result_.at();
    void* arguments[] = {&from, &count, &to};
    constexpr unsigned kBlocks = 528, kThreads = 512;  // all that an H200 runs at once
    const cuda::LaunchConfig config{{kBlocks, 1, 1}, {kThreads, 1, 1}, 0, device_.stream(), nullptr, 0};
    device_.check(device_.driver().launch(&config, function_, arguments, nullptr), "cuLaunchKernelEx");
  }

 private:
  const Device& device_;
  const Memory result_;
  cuda::ModuleHandle module_ = nullptr;
  cuda::FunctionHandle function_ = nullptr;
};

/// Activations, which the host has, too, and room for C.
struct Operands {
  Operands(const Device& device, const Shape& shape, int64_t most_rows, marlin_dtype type)
      : dtype(type),
        on_host(random_numbers(static_cast<size_t>(most_rows * shape.k), type, 2)),
        a(device, on_host.size() * kElementBytes),
        c(device, static_cast<size_t>(most_rows * shape.n) * kElementBytes) {
    device.upload(a.at(), on_host.data(), on_host.size() * kElementBytes);
  }
  const marlin_dtype dtype;
  const std::vector<uint16_t> on_host;
  const Memory a, c;
};

/// The library's products with M rows, one for each of the weights.
class Products {
 public:
  Products(const mm::context& context, const Device& device, const std::vector<mm::weights>& weights, const Shape& shape,
           const Operands& operands, int64_t m) {
    auto stream = mm::make<marlin_stream_desc>();
    stream.kind = MARLIN_NATIVE_CUDA_STREAM;
    stream.native = device.stream();
    stream_ = mm::stream(context, stream);
    const auto matrix = [&](const Memory& memory, int64_t columns) {
      marlin_matrix view{};
      view.data = reinterpret_cast<void*>(memory.at());
      view.rows = m;
      view.cols = columns;
      view.dtype = operands.dtype;
      view.memory = MARLIN_MEM_CUDA;
      return view;
    };
    for (const mm::weights& each : weights) {
      auto& desc = descs_.emplace_back(mm::make<marlin_gemm_desc>());
      desc.weights = each.get();
      desc.a = matrix(operands.a, shape.k);
      desc.c = matrix(operands.c, shape.n);
    }
    mm::prepare(stream_, {descs_.front()}, m);
  }
  void multiply() const {
    for (const marlin_gemm_desc& desc : descs_) mm::gemm(stream_, desc);
  }
  std::string kernel() const {
    const std::string text = mm::explain(descs_.front()), key = "kernel: ";
    return text.substr(key.size(), text.find('\n') - key.size());
  }

 private:
  mm::stream stream_;
  std::vector<marlin_gemm_desc> descs_;
};

class Race {
 public:
  explicit Race(const Options& options)
      : options_(options),
        context_(MARLIN_BACKEND_CUDA),
        read_floor_(device_, options.read_floor),
        cublas_(device_, options.cublas),
        made_(options.shapes),
        numbers_(device_, bytes_of_numbers()),
        report_({device_.name(), device_.driver_version(), cublas_.about(), options.activations, options.cool, options.rounds},
                options.json) {
    fill_numbers();
  }

  /// Whether all products ran and were right.
  bool run() {
    for (const Shape* shape : options_.shapes) run(*shape);
    return right_;
  }

 private:
  /// What one line needs besides its rows.
  struct Place {
    const Shape& shape;
    const Format& format;
    const std::vector<mm::weights>& weights;
    const Operands& operands;
    const DecodedRows& last;  ///< of the weights, whose product is the one that is left in C
  };

  /// cuBLAS's weights, and what the kernel that only reads reads.
  size_t bytes_of_numbers() const {
    size_t most = 0;
    for (const Shape* shape : options_.shapes) {
      most = std::max(most, dense_bytes(*shape) * copies_of(dense_bytes(*shape)));
      for (const Format* format : options_.formats)
        most = std::max(most, packed_bytes(*shape, *format) * copies_of(packed_bytes(*shape, *format)));
    }
    return most;
  }

  /// The same block again and again: it takes long to make random numbers, and caches do not see what is in them.
  void fill_numbers() const {
    const size_t bytes = bytes_of_numbers(), block = std::min(bytes, size_t{32} << 20);
    const auto numbers = random_numbers(block / kElementBytes, options_.activations, 3);
    device_.upload(numbers_.at(), numbers.data(), block);
    for (size_t at = block; at < bytes; at += block) device_.copy(numbers_.at(at), numbers_.at(), std::min(block, bytes - at));
    device_.wait();
  }

  void run(const Shape& shape) {
    std::vector<int64_t> rows;
    for (const int64_t m : options_.rows)
      if (m <= shape.most_rows) rows.push_back(m);
    if (rows.empty()) return;
    const Operands operands(device_, shape, *std::max_element(rows.begin(), rows.end()), options_.activations);
    if (cublas_.is_there()) check_cublas(shape, operands, rows.front());
    for (const Format* format : options_.formats) {
      std::vector<mm::weights> weights;
      for (size_t copy = 0; copy < copies_of(packed_bytes(shape, *format)); ++copy)
        weights.push_back(made_.pack(context_, shape, *format, copy));
      const DecodedRows last = made_.decode(shape, *format, weights.size() - 1, some_of(shape.n));
      const Place place{shape, *format, weights, operands, last};
      for (const int64_t m : rows) run(place, m);
    }
  }

  /// One line. A product that the library refuses, as one that METAL_MARLIN_KERNEL's kernel does not serve, does not end the
  /// race.
  void run(const Place& place, int64_t m) {
    try {
      report_.add(measure(place, m));
    } catch (const mm::error& e) {
      if (e.status() != MARLIN_E_UNSUPPORTED) throw;
      right_ = false;
      report_.refuse(place.shape, place.format, m, e.what());
    }
  }

  Result measure(const Place& place, int64_t m) {
    const auto& [shape, format, weights, operands, last] = place;
    const Products products(context_, device_, weights, shape, operands, m);
    products.multiply();  // loads kernels, which a graph that is being captured would not bear
    device_.wait();
    const Graph ours(device_, [&] { products.multiply(); });
    device_.fill(operands.c.at(), 0xff, static_cast<size_t>(m * shape.n) * kElementBytes);
    ours.launch();
    const Verdict verdict =
        check(device_, {operands.dtype, m, shape.n, shape.k, operands.on_host.data(), operands.c.at()}, last);
    right_ = right_ && verdict.is_right();

    const Graph read(device_, [&] {
      const size_t bytes = packed_bytes(shape, format);
      for (size_t copy = 0; copy < weights.size(); ++copy) read_floor_.read(numbers_.at(copy * bytes), bytes);
    });
    std::vector<const Graph*> graphs = {&ours, &read};
    std::unique_ptr<Graph> dense;
    if (cublas_.is_there()) {
      multiply_dense(shape, operands, m, 1);
      device_.wait();
      dense = std::make_unique<Graph>(device_, [&] { multiply_dense(shape, operands, m, copies_of(dense_bytes(shape))); });
      graphs.push_back(dense.get());
    }
    auto times = replay_in_turn(device_, graphs, options_.rounds, options_.cool);
    const size_t copies[] = {weights.size(), weights.size(), copies_of(dense_bytes(shape))};
    for (size_t graph = 0; graph < times.size(); ++graph)
      for (double& time : times[graph]) time /= static_cast<double>(copies[graph]);
    Result result{shape, format, m, products.kernel(), median(times[0]), median(times[1]), median_ratio(times[0], times[1]),
                  {},    verdict};
    if (dense) result.cublas = {median(times[2]), median_ratio(times[2], times[0])};
    return result;
  }

  void multiply_dense(const Shape& shape, const Operands& operands, int64_t m, size_t copies) const {
    for (size_t copy = 0; copy < copies; ++copy)
      cublas_.multiply(
          {operands.dtype, m, shape.n, shape.k, operands.a.at(), numbers_.at(copy * dense_bytes(shape)), operands.c.at()});
  }

  /// A race against a product of something else would say nothing. cuBLAS may round sums of parts to 16 bits, so that the
  /// bounds of our products are not for it.
  void check_cublas(const Shape& shape, const Operands& operands, int64_t m) const {
    DecodedRows weights{some_of(shape.n), std::vector<double>(static_cast<size_t>(shape.k * some_of(shape.n).size()))};
    std::vector<uint16_t> row(static_cast<size_t>(shape.k));
    for (size_t i = 0; i < weights.rows.size(); ++i) {
      device_.download(row.data(), numbers_.at(static_cast<size_t>(weights.rows[i]) * row.size() * kElementBytes),
                       row.size() * kElementBytes);
      for (size_t k = 0; k < row.size(); ++k)
        weights.values[k * weights.rows.size() + i] = oracle::read(operands.dtype, row.data(), static_cast<int64_t>(k));
    }
    device_.fill(operands.c.at(), 0xff, static_cast<size_t>(m * shape.n) * kElementBytes);
    multiply_dense(shape, operands, m, 1);
    const Verdict verdict =
        check(device_, {operands.dtype, m, shape.n, shape.k, operands.on_host.data(), operands.c.at()}, weights);
    if (!(verdict.nmse < 1e-3)) throw std::runtime_error("cuBLAS multiplies something else than this library");
  }

  const Options& options_;
  const Device device_;
  const mm::context context_;
  const ReadFloor read_floor_;
  const Cublas cublas_;
  const RandomWeights made_;
  const Memory numbers_;
  Report report_;
  bool right_ = true;
};

/// Those of a table whose names are in the list.
template <class Entry, size_t kCount>
std::vector<const Entry*> named(const Entry (&table)[kCount], const std::vector<std::string>& names) {
  std::vector<const Entry*> chosen;
  for (const std::string& name : names)
    chosen.push_back(std::find_if(std::begin(table), std::end(table), [&](const Entry& entry) { return entry.name == name; }));
  return chosen;
}
template <class Entry, size_t kCount>
std::vector<std::string> names_of(const Entry (&table)[kCount]) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.emplace_back(entry.name);
  return names;
}

/// The exit status if there is nothing to run.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Times products on an NVIDIA GPU beside cuBLAS and a kernel that only reads as many bytes, and checks them.\n"
      "METAL_MARLIN_KERNEL=NAME forces a kernel. The exit status is 1 if a product is wrong or refused.");
  std::vector<std::string> shapes = names_of(kShapes), formats = {"mxfp4"};
  std::string activations = "bf16";
  app.add_option("READ_FLOOR.fatbin", options.read_floor, "the kernel that only reads, as the build makes it")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--shapes", shapes, "of these, with commas between; lm_head has up to 8 rows")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names_of(kShapes)))
      ->capture_default_str();
  app.add_option("--rows", options.rows, "M, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--formats", formats, "of the weights, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names_of(kFormats)))
      ->capture_default_str();
  app.add_option("--activations", activations, "and results; cuBLAS's weights, too")
      ->check(CLI::IsMember({"bf16", "f16"}))
      ->capture_default_str();
  app.add_flag("--cool", options.cool, "25 ms without work before each replay; otherwise replays are back to back");
  app.add_option("--rounds", options.rounds, "in which each graph is replayed once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--cublas", options.cublas, "a folder to look for libcublas.so in; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::ExistingDirectory);
  app.add_option("--json", options.json, "a file for one JSON record a line of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  options.shapes = named(kShapes, shapes);
  options.formats = named(kFormats, formats);
  options.activations = activations == "f16" ? MARLIN_F16 : MARLIN_BF16;
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto status = parse(argc, argv, options)) return *status;
    const bool right = Race(options).run();
    if (!right) std::fprintf(stderr, "A product is wrong or refused.\n");
    return right ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

#include "timing_products.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace timing {

namespace mm = metal_marlin;

marlin_matrix device_matrix(DevicePtr at, int64_t rows, int64_t columns, marlin_dtype dtype) {
  marlin_matrix view{};
  view.data = reinterpret_cast<void*>(at);
  view.rows = rows;
  view.cols = columns;
  view.dtype = dtype;
  view.memory = MARLIN_MEM_CUDA;
  return view;
}

Numbers::Numbers(const Device& device, size_t count, marlin_dtype type)
    : dtype(type), on_host(random_numbers(count, type, 2)), memory(device, count * kElementBytes) {
  device.upload(memory.at(), on_host.data(), count * kElementBytes);
}

RepeatedNumbers::RepeatedNumbers(const Device& device, size_t bytes, marlin_dtype dtype) : Memory(device, bytes) {
  const size_t block = std::min(bytes, size_t{32} << 20);
  const auto numbers = random_numbers(block / kElementBytes, dtype, 3);
  device.upload(at(), numbers.data(), block);
  for (size_t offset = block; offset < bytes; offset += block) device.copy(at(offset), at(), std::min(block, bytes - offset));
  device.wait();
}

Products::Products(const mm::context& context, const Device& device, std::vector<marlin_gemm_desc> descs, int64_t m)
    : descs_(std::move(descs)) {
  auto stream = mm::make<marlin_stream_desc>();
  stream.kind = MARLIN_NATIVE_CUDA_STREAM;
  stream.native = device.stream();
  stream_ = mm::stream(context, stream);
  mm::prepare(stream_, descs_, m);
}

void Products::multiply() const {
  for (const marlin_gemm_desc& desc : descs_) mm::gemm(stream_, desc);
}

ReadFloor::ReadFloor(const Device& device, const std::string& path) : device_(device), result_(device, sizeof(uint32_t)) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  device_.check(device_.driver().load_module(&module_, image.data()), "cuModuleLoadData");
  device_.check(device_.driver().function(&function_, module_, "read_floor"), "cuModuleGetFunction");
}

void ReadFloor::read(DevicePtr from, size_t bytes) const {
  unsigned long long count = bytes / 16, to = result_.at();
  void* arguments[] = {&from, &count, &to};
  constexpr unsigned kBlocks = 528, kThreads = 512;  // all that an H200 runs at once
  const cuda::LaunchConfig config{{kBlocks, 1, 1}, {kThreads, 1, 1}, 0, device_.stream(), nullptr, 0};
  device_.check(device_.driver().launch(&config, function_, arguments, nullptr), "cuLaunchKernelEx");
}

std::string kernel_of(const marlin_gemm_desc& desc) {
  const std::string text = mm::explain(desc), key = "kernel: ";
  return text.substr(key.size(), text.find('\n') - key.size());
}

}  // namespace timing

// marlin_checkpoint_convert: checkpoints of every layout, to every scheme. Most calls are dry runs; the others write.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "fuzz/operands.h"

#ifndef MARLIN_FUZZ_REPLAY
/// The library tells the system which pages of a file it has read. The next input reads them again, so the fuzzer keeps them.
extern "C" int madvise(void* address, size_t length, int advice) noexcept {
  return advice == MADV_DONTNEED ? 0 : static_cast<int>(syscall(SYS_madvise, address, length, advice));
}
#endif

namespace metal_marlin::fuzz {
namespace {

constexpr const char* kInputs[] = {"float-f32",      "ct-mxfp4",     "gptq-v2-asym-g32",      "gguf-mixed",
                                   "mlx-affine-g64", "gguf-kquants", "mxfp4-gpt-oss-experts", "float-bf16",
                                   "awq-gemm-g128"};
constexpr const char* kTypes[] = {nullptr, "Q4_0", "Q4_K", "Q6_K", "Q8_0", "MXFP4", "F16", "Q9_X", ""};

struct Opened {
  checkpoint file;
  std::vector<std::string> names;
};

const Opened& some_checkpoint(uint32_t which) {
  static const std::vector<Opened> all = [] {
    std::vector<Opened> opened;
    for (const char* name : kInputs) {
      Opened one{checkpoint(MARLIN_TEST_DATA "/" + std::string(name)), {}};
      for (const auto& layer : one.file.layers()) one.names.emplace_back(layer.name);
      opened.push_back(std::move(one));
    }
    return opened;
  }();
  return all[which];
}

/// The folder that a call may make, in memory where the system has such. Most calls make none, so its path is looked up once a
/// call: looking up more took most of the time on machines whose system calls are slow.
const std::string& out_folder() {
  static const std::string of_this_process = [] {
    const bool in_memory = access("/dev/shm", W_OK) == 0;
    const std::string place = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    const std::string path = place + "/marlin-fuzz-" + std::to_string(getpid());
    std::filesystem::remove_all(path);
    return path;
  }();
  return of_this_process;
}

struct Host {
  int64_t calls_until_cancelled;
  uint64_t outcomes = 0;
};

int32_t progress(void* user, uint64_t, uint64_t, const char*) {
  return --static_cast<Host*>(user)->calls_until_cancelled == 0 ? 1 : 0;
}

void layer_done(void* user, const marlin_convert_outcome* outcome) {
  expect(outcome->name != nullptr && outcome->reason != nullptr, "an outcome has a name and a reason");
  ++static_cast<Host*>(user)->outcomes;
}

}  // namespace
}  // namespace metal_marlin::fuzz

MARLIN_FUZZ_TARGET(convert) {
  using namespace metal_marlin;
  using namespace metal_marlin::fuzz;
  Reader in(input);
  (void)the_context();
  Operands operands;
  const Opened& from = some_checkpoint(in.choice(std::size(kInputs)));
  auto d = make<marlin_convert_desc>();
  d.scheme = static_cast<marlin_scheme>(in.choice(7));
  d.format = static_cast<marlin_format>(in.choice(19));
  set_size(d, in);
  const bool writes = in.byte() >= 248;
  d.flags = in.bits(0) | (writes ? 0u : MARLIN_CONVERT_DRY_RUN);
  d.group_size = in.bits(0);
  d.shard_bytes = static_cast<uint64_t>(in.number(0));
  Host host{std::max<int64_t>(in.number(-1), -1)};
  d.progress = progress;
  d.layer_done = layer_done;
  d.user = &host;
  std::vector<const char*> layers, types;
  std::vector<marlin_matrix> norms;
  const bool typed = in.choice(4) == 1, weighed = in.choice(4) == 1;
  for (uint32_t i = 0, count = 1 + in.choice(3); i < count; ++i) {
    const uint8_t name = in.byte();
    layers.push_back(name < 250 ? from.names[name % from.names.size()].c_str() : (name == 250 ? nullptr : "nothing"));
    types.push_back(kTypes[in.choice(std::size(kTypes))]);
    norms.push_back(operands.take(in, 1, 128, MARLIN_F32));
  }
  d.layers = in.byte() < 250 ? layers.data() : nullptr;
  d.layer_count = static_cast<uint32_t>(layers.size());
  if (typed) d.types = types.data();
  if (weighed) d.column_norms = norms.data();
  const std::string path = out_folder() + (in.choice(2) == 0 ? "" : "/model.gguf");
  auto err = make<marlin_error>();
  const marlin_status status = marlin_checkpoint_convert(from.file.get(), path.c_str(), &d, &err);
  expect_typed(status, err.message);
  const bool made = access(out_folder().c_str(), F_OK) == 0;
  expect(!made || status == MARLIN_OK, "a failed conversion leaves nothing", err.message);
  expect(!made || (d.flags & MARLIN_CONVERT_DRY_RUN) == 0, "a dry run writes nothing");
  std::error_code ignored;
  if (made) std::filesystem::remove_all(out_folder(), ignored);
}

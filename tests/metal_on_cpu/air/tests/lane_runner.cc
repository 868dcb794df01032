#include "lane_runner.h"

#include <dlfcn.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

namespace metal_on_cpu::air {
namespace {

constexpr uint32_t kWidth = 32;

// Lanes that wait for one another: the last to arrive computes for all.
class Meeting {
 public:
  explicit Meeting(uint32_t count) : count_(count) {}
  template <class F>
  void wait(F last) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (++arrived_ == count_) {
      last();
      arrived_ = 0, ++round_;
      all_.notify_all();
    } else {
      const uint64_t round = round_;
      all_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  uint32_t count_, arrived_ = 0;
  uint64_t round_ = 0;
};

struct Group {
  explicit Group(uint32_t threads) : everyone(threads) {
    for (uint32_t first = 0; first < threads; first += kWidth)
      simdgroups.push_back(std::make_unique<Simdgroup>(std::min(kWidth, threads - first)));
  }
  struct Simdgroup {
    explicit Simdgroup(uint32_t n) : meeting(n), active(n == kWidth ? 0xffffffffu : (1u << n) - 1) {}
    Meeting meeting;
    uint32_t active;
    void* lanes[kWidth] = {};
  };
  Meeting everyone;
  std::vector<std::unique_ptr<Simdgroup>> simdgroups;
  std::mutex mutex;
  std::map<uint32_t, std::vector<uint64_t>> variables;
};

struct Lane {
  Group* group;
  uint32_t index;
};
thread_local Lane lane;

}  // namespace

Result<std::unique_ptr<LaneImage>> LaneImage::build(const std::string& ir) {
  std::string folder = (std::filesystem::temp_directory_path() / "air-image-XXXXXX").string();
  if (!mkdtemp(folder.data())) return Error{folder + ": cannot be made"};
  const std::string text = folder + "/kernel.ll", image = folder + "/kernel.so";
  std::ofstream(text, std::ios::binary) << ir;
  const std::string command =
      METAL_ON_CPU_CLANG " -x ir " + text + " -O2 -fPIC -mf16c -mfma -mavx2 -shared -Wno-everything -lm -o " + image;
  std::unique_ptr<LaneImage> loaded(new LaneImage);
  Result<std::unique_ptr<LaneImage>> result = Error{"clang failed: " + command};
  if (std::system(command.c_str()) == 0) {
    loaded->handle_ = dlopen(image.c_str(), RTLD_NOW | RTLD_LOCAL);
    using Table = const msl::Kernel* (*)(uint32_t*);
    const auto table = loaded->handle_ ? reinterpret_cast<Table>(dlsym(loaded->handle_, "msl_image_kernels")) : nullptr;
    uint32_t count = 0;
    if (table) loaded->kernel_ = table(&count);
    if (count == 1) {
      result = std::move(loaded);
    } else {
      result = Error{table ? "the image has " + std::to_string(count) + " kernels" : std::string(dlerror())};
    }
  }
  std::filesystem::remove_all(folder);
  return result;
}

LaneImage::~LaneImage() {
  if (handle_) dlclose(handle_);
}

void LaneImage::run(const std::vector<void*>& buffers, msl::Uint3 groups, uint32_t threads) const {
  for (uint32_t g = 0; g < groups.x * groups.y * groups.z; ++g) {
    Group group(threads);
    std::vector<std::thread> lanes;
    for (uint32_t i = 0; i < threads; ++i) {
      lanes.emplace_back([&, i] {
        lane = {&group, i};
        msl::Arguments all{buffers.data(), nullptr, {}};
        const msl::Uint3 at{g % groups.x, g / groups.x % groups.y, g / groups.x / groups.y};
        all.builtins[msl::kThreadgroupPositionInGrid] = at;
        all.builtins[msl::kThreadPositionInGrid] = {at.x * threads + i, at.y, at.z};
        all.builtins[msl::kThreadPositionInThreadgroup] = all.builtins[msl::kThreadIndexInThreadgroup] = {i, 0, 0};
        all.builtins[msl::kThreadIndexInSimdgroup] = {i % kWidth, 0, 0};
        all.builtins[msl::kSimdgroupIndexInThreadgroup] = {i / kWidth, 0, 0};
        all.builtins[msl::kThreadsPerThreadgroup] = {threads, 1, 1};
        all.builtins[msl::kThreadsPerSimdgroup] = {kWidth, 1, 1};
        all.builtins[msl::kSimdgroupsPerThreadgroup] = {(threads + kWidth - 1) / kWidth, 1, 1};
        all.builtins[msl::kThreadgroupsPerGrid] = groups;
        all.builtins[msl::kThreadsPerGrid] = {groups.x * threads, groups.y, groups.z};
        kernel_->run(*kernel_, all);
      });
    }
    for (std::thread& t : lanes) t.join();
  }
}

}  // namespace metal_on_cpu::air

#define AIR_EXPORT extern "C" __attribute__((visibility("default")))
using metal_on_cpu::air::lane;

AIR_EXPORT void msl_threadgroup_barrier(uint32_t, const char*, uint32_t, uint32_t) {
  lane.group->everyone.wait([] {});
}
AIR_EXPORT void msl_collective(uint32_t, void* argument, msl::Resolve resolve, const char*, uint32_t, uint32_t) {
  auto& simdgroup = *lane.group->simdgroups[lane.index / 32];
  simdgroup.lanes[lane.index % 32] = argument;
  simdgroup.meeting.wait([&] { resolve(simdgroup.lanes, simdgroup.active); });
}
AIR_EXPORT void msl_simdgroup_barrier(uint32_t, const char*, uint32_t, uint32_t) {
  lane.group->simdgroups[lane.index / 32]->meeting.wait([] {});
}
AIR_EXPORT uint8_t* msl_take_shadow() { return nullptr; }
AIR_EXPORT uint32_t msl_lane() { return lane.index % 32; }
AIR_EXPORT void* msl_threadgroup_variable(uint32_t id, size_t size, size_t, const char*, const char*, uint32_t) {
  const std::lock_guard<std::mutex> lock(lane.group->mutex);
  auto& storage = lane.group->variables[id];
  if (storage.empty()) storage.resize(size / 8 + 1);
  return storage.data();
}
AIR_EXPORT void msl_inactive_lane(uint32_t, uint32_t) { std::abort(); }

// Many small pieces of work that can fail, spread over a TaskRunner.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/status.h"
#include "core/tasks.h"

namespace metal_marlin {

/// One task after the other, on the thread that calls.
class SequentialRunner final : public TaskRunner {
 public:
  void run(uint32_t tasks, TaskRef task) override {
    for (uint32_t i = 0; i < tasks; ++i) task(i);
  }
  uint32_t width() const override { return 1; }
};

/// Calls worker(item) once for every item in [0, count). At most runner.width() workers exist, each
/// made by make_worker() on its own thread, so that a worker may keep buffers from item to item.
/// After a failure no new items are begun; the Status of the lowest failed item is returned, which
/// does not depend on timing because items are begun in order. Exceptions stop here.
template <class MakeWorker>
Status for_each_item(TaskRunner& runner, int64_t count, const MakeWorker& make_worker) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  int64_t failed_item = count;
  Status failure;
  std::atomic<bool> failed{false};
  const auto fail = [&](int64_t item, const Status& status) {
    const std::lock_guard lock(mutex);
    if (item < failed_item) {
      failed_item = item;
      failure = status;
    }
    failed.store(true, std::memory_order_relaxed);
  };
  const auto task = [&](uint32_t) {
    int64_t item = next.fetch_add(1, std::memory_order_relaxed);
    if (item >= count) return;
    try {
      auto worker = make_worker();
      for (; item < count; item = next.fetch_add(1, std::memory_order_relaxed)) {
        if (const Status status = worker(item); !status.ok()) fail(item, status);
        if (failed.load(std::memory_order_relaxed)) return;
      }
    } catch (const std::bad_alloc&) {
      fail(item, Status::error(MARLIN_E_MEMORY, "out of memory for temporaries"));
    } catch (...) {
      fail(item, Status::error(MARLIN_E_INTERNAL, "unexpected exception in a task"));
    }
  };
  runner.run(static_cast<uint32_t>(std::min<int64_t>(runner.width(), count)), task);
  return failure;
}

}  // namespace metal_marlin

#include "core/thread_pool.h"
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fp_environment.h"
#include "core/usable_threads.h"
#include "unit/under_sanitizer.h"

#if defined(__APPLE__)
#include <libproc.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace metal_marlin {
namespace {

int threads_of_this_process() {
#if defined(__APPLE__)
  proc_taskinfo info{};
  return proc_pidinfo(getpid(), PROC_PIDTASKINFO, 0, &info, sizeof info) == sizeof info ? info.pti_threadnum : -1;
#else
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
#endif
}

/// A joined thread may stay listed for a moment.
bool threads_become(int expected) {
  for (int i = 0; i < 1000 && threads_of_this_process() != expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_of_this_process() == expected;
}

/// Runs tasks that each add to their own counter; true when each ran once.
bool each_runs_once(TaskRunner& runner, uint32_t tasks) {
  std::vector<std::atomic<int>> ran(tasks);
  const auto task = [&](uint32_t i) { ran[i].fetch_add(1, std::memory_order_relaxed); };
  runner.run(tasks, task);
  return std::all_of(ran.begin(), ran.end(), [](const auto& n) { return n.load() == 1; });
}

/// Runs a task on every thread of the pool at once. A thread that has a task has started completely. A fork() while one starts
/// may leave a lock of the sanitizers' runtime closed in the child.
void use_every_thread(ThreadPool& pool) {
  std::atomic<uint32_t> inside{0};
  const auto task = [&](uint32_t) {
    inside.fetch_add(1);
    while (inside.load() < pool.width()) std::this_thread::yield();
  };
  pool.run(pool.width(), task);
}

TEST(ThreadPool, EachTaskRunsOnce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const uint32_t threads : {0u, 1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.width(), std::max(threads, 1u));
    for (int round = 0; round < 2500; ++round) ASSERT_TRUE(each_runs_once(pool, random() % 40)) << threads << " threads";
  }
}

TEST(ThreadPool, StartsNothingBeforeTheFirstRunAndJoinsAll) {
  SKIP_UNDER_TSAN();
  const int before = threads_of_this_process();
  {
    ThreadPool pool(4);
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_TRUE(each_runs_once(pool, 1));
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_TRUE(each_runs_once(pool, 2));
    EXPECT_EQ(threads_of_this_process(), before + 3);
  }
  EXPECT_TRUE(threads_become(before));
}

/// The host's handlers run on its own threads, which get their signals as before.
TEST(ThreadPool, SignalsAreTheHostsAffair) {
  sigset_t before, after;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  ThreadPool pool(3);
  const auto host = pthread_self();
  std::atomic<int> open{0}, inside{0};
  pool.run(pool.width(), [&](uint32_t) {
    inside.fetch_add(1);
    while (inside.load() < static_cast<int>(pool.width())) std::this_thread::yield();
    sigset_t own;
    pthread_sigmask(SIG_SETMASK, nullptr, &own);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF})
      if (!pthread_equal(pthread_self(), host) && !sigismember(&own, signal)) open.fetch_add(1);
  });
  EXPECT_EQ(open.load(), 0);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  for (int signal = 1; signal < NSIG; ++signal) EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
}

TEST(ThreadPool, UsesItsThreads) {
  ThreadPool pool(2);
  for (const int sleep_ms : {0, 0, 5, 0, 5}) {  // awake and asleep workers
    std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
    use_every_thread(pool);
  }
}

TEST(ThreadPool, CallerSleepsUntilALongTaskEnds) {
  ThreadPool pool(2);
  std::atomic<int> finished{0};
  std::atomic<std::thread::id> caller{std::this_thread::get_id()};
  for (int round = 0; round < 20; ++round) {
    finished = 0;
    std::atomic<int> inside{0};
    const auto task = [&](uint32_t) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller.load()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      finished.fetch_add(1);
    };
    pool.run(2, task);
    ASSERT_EQ(finished.load(), 2);
  }
}

TEST(ThreadPool, ConcurrentCallersRunTheirTasksThemselves) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  callers.reserve(6);
  std::atomic<int> failures{0};
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 1000; ++round)
        if (!each_runs_once(pool, 17)) failures.fetch_add(1);
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(ThreadPool, TasksMayRunTasks) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  const auto inner = [&](uint32_t i) { sum.fetch_add(static_cast<int>(i)); };
  const auto outer = [&](uint32_t) { pool.run(4, inner); };
  pool.run(5, outer);
  EXPECT_EQ(sum.load(), 5 * 6);
}

TEST(ThreadPool, AbsurdThreadCountIsBounded) {
  ThreadPool pool(UINT32_MAX);
  EXPECT_EQ(pool.width(), ThreadPool::kMaxThreads);
}

/// Runs `work` in a forked child with a time limit; its exit status, or -1.
template <class Work>
int in_child(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends in a signal
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ThreadPool, ChildOfAForkHasItsOwnThreads) {
  SKIP_UNDER_TSAN();
  ThreadPool pool(3);
  use_every_thread(pool);
  for (int round = 0; round < 200; ++round) {
    const int status = in_child([&] {
      const bool alone = threads_of_this_process() == 1;
      const bool ran = each_runs_once(pool, 100) && each_runs_once(pool, 3);
      const int threads = threads_of_this_process();
      pool.~ThreadPool();
      return alone && ran && threads == 3 && threads_become(1);
    });
    ASSERT_EQ(status, 0);
    ASSERT_TRUE(each_runs_once(pool, 10));
  }
}

#if defined(__linux__)
/// In a child that is the first process of a namespace of its own; false when the system refuses the namespace.
template <class Work>
bool in_namespace(const Work& work, int& status) {
  // The namespace is the next child's, and there is no way back: so a child of this process asks for it.
  constexpr int kRefused = 77;
  const int outer = in_child([&] {
    if (unshare(CLONE_NEWPID) != 0) _exit(kRefused);
    const int inner = in_child([&] { return getpid() == 1 && work(); });
    return inner == 0;
  });
  status = outer;
  return !WIFEXITED(outer) || WEXITSTATUS(outer) != kRefused;
}

/// Parent and child both have the process id 1, as the first processes of namespaces that lie in each other.
TEST(ThreadPool, ChildWithTheProcessIdOfItsParent) {
  SKIP_UNDER_TSAN();
  int status = 0;
  const bool tried = in_namespace(
      [] {
        ThreadPool pool(3), unused(3);
        use_every_thread(pool);
        use_every_thread(unused);
        int child = 0;
        const bool may = in_namespace(
            [&] {
              const bool alone = threads_of_this_process() == 1;
              unused.~ThreadPool();
              const bool ran = each_runs_once(pool, 100) && each_runs_once(pool, 3);
              pool.~ThreadPool();
              return alone && ran;
            },
            child);
        return may && child == 0 && each_runs_once(pool, 10);
      },
      status);
  if (!tried) GTEST_SKIP() << "this process may not make a namespace of process ids";
  EXPECT_EQ(status, 0);
}
#endif

TEST(ThreadPool, ForkWhileAnotherThreadRuns) {
  SKIP_UNDER_TSAN();
  SKIP_UNDER_ASAN();
  ThreadPool pool(3);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) each_runs_once(pool, 50);
  });
  for (int round = 0; round < 200; ++round) {
    const int status = in_child([&] {
      // Atomics of its own: the vector in each_runs_once() needs malloc, which fork() keeps usable.
      return each_runs_once(pool, 100) && each_runs_once(pool, 90) && threads_of_this_process() == 3;
    });
    EXPECT_EQ(status, 0);
  }
  stop = true;
  other.join();
}

// The sanitizers' shadow memory needs an address space without limit.
#if defined(__linux__) && !defined(MARLIN_UNDER_TSAN) && !defined(MARLIN_UNDER_ASAN)
TEST(ThreadPool, FewerThreadsWhenTheSystemRefuses) {
  EXPECT_EQ(in_child([] {
              ThreadPool pool(64);
              std::ifstream statm("/proc/self/statm");
              size_t pages = 0;
              statm >> pages;
              // Room for the stacks of a few threads only.
              const rlim_t bytes = pages * static_cast<size_t>(getpagesize()) + (size_t{20} << 20);
              const rlimit limit{bytes, bytes};
              if (setrlimit(RLIMIT_AS, &limit) != 0 || !each_runs_once(pool, 1000)) return false;
              return threads_of_this_process() < 32 && each_runs_once(pool, 1000);
            }),
            0);
}
#endif

#if defined(__GLIBC__)
/// Writes to every page of as much stack as a host's threads must have.
[[gnu::noinline]] void use_stack() {
  volatile char bytes[128 << 10];
  for (size_t i = 0; i < sizeof bytes; i += 1024) bytes[sizeof bytes - 1 - i] = 1;
}

TEST(ThreadPool, ThreadsHaveStackEnoughWhereTheDefaultIsLess) {
  SKIP_UNDER_TSAN();
  EXPECT_EQ(in_child([] {
              pthread_attr_t small;
              pthread_attr_init(&small);
              pthread_attr_setstacksize(&small, 64 << 10);
              if (pthread_setattr_default_np(&small) != 0) return false;
              ThreadPool pool(2);
              std::atomic<int> inside{0};
              pool.run(2, [&](uint32_t) {
                inside.fetch_add(1);
                while (inside.load() < 2) std::this_thread::yield();  // so that both threads have a task
                use_stack();
              });
              return true;
            }),
            0);
}
#endif

TEST(ThreadPool, UnusedPoolDiesCleanlyInAChild) {
  ThreadPool pool(3);
  use_every_thread(pool);
  EXPECT_EQ(in_child([&] {
              pool.~ThreadPool();
              return true;
            }),
            0);
}

TEST(HostRunner, SerialLoopIsLegal) {
  uint32_t calls = 0;
  HostRunner runner(
      [](void* user, uint32_t tasks, void (*task)(void*, uint32_t), void* task_user) {
        ++*static_cast<uint32_t*>(user);
        for (uint32_t i = tasks; i-- > 0;) task(task_user, i);
      },
      &calls, 4);
  EXPECT_EQ(runner.width(), 4u);
  EXPECT_TRUE(each_runs_once(runner, 9));
  EXPECT_TRUE(each_runs_once(runner, 0));
  EXPECT_EQ(calls, 1u);
}

#if defined(__x86_64__)
TEST(FpEnvironment, OtherThreadsHaveTheCallersDefaultModesAndTheHostsComeBack) {
  constexpr unsigned kHost = 0x1f80 | 0x8040 | 0x6000;  // flush-to-zero, denormals-are-zero, towards zero
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(kHost);
  ThreadPool pool(3);
  HostRunner host(
      [](void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
        for (uint32_t i = 0; i < tasks; ++i) task(user, i);
      },
      nullptr, 1);
  for (TaskRunner* runner : {static_cast<TaskRunner*>(&pool), static_cast<TaskRunner*>(&host)})
    for (const uint32_t tasks : {1u, 64u}) {
      std::atomic<int> wrong{0};
      const auto task = [&](uint32_t) {
        if ((_mm_getcsr() & ~0x3fu) != 0x1f80) wrong.fetch_add(1);
        _mm_setcsr(_mm_getcsr() | 0x3f);  // exception flags of our own, which the host must not see
      };
      {
        const FpEnvironment of_the_boundary;
        runner->run(tasks, task);
      }
      EXPECT_EQ(wrong.load(), 0);
      EXPECT_EQ(_mm_getcsr(), kHost);
    }
  _mm_setcsr(saved);
}
#endif

#if defined(__linux__)
TEST(UsableThreads, FollowsTheAffinityMask) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_LE(usable_threads(), static_cast<uint32_t>(CPU_COUNT(&all)));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_threads(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}
#endif

class CgroupLimit : public testing::Test {
 protected:
  void SetUp() override {
    mount_ = testing::TempDir() + "/cgroup-" + std::to_string(getpid());
    std::filesystem::remove_all(mount_);
  }
  void TearDown() override { std::filesystem::remove_all(mount_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(mount_ + path).parent_path());
    std::ofstream(mount_ + path) << text;
  }
  std::string mount_;
};

TEST_F(CgroupLimit, NoneWithoutFiles) {
  EXPECT_EQ(cgroup_cpu_limit("", mount_), 0u);
  EXPECT_EQ(cgroup_cpu_limit("0::/a/b\n1:cpu:/c\nnonsense\n:\n", mount_), 0u);
}

TEST_F(CgroupLimit, V2TakesTheLeastOfAllAncestors) {
  write("/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_limit("0::/a/b\n", mount_), 0u);
  write("/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit("0::/a/b\n", mount_), 4u);
  write("/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit("0::/a/b\n", mount_), 1u);
  EXPECT_EQ(cgroup_cpu_limit("0::/a", mount_), 4u);
  write("/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit("0::/not/visible/here\n", mount_), 2u);
}

TEST_F(CgroupLimit, V1ReadsTheCpuController) {
  write("/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  const char* self = "5:memory:/docker/x\n4:cpuset:/docker/x\n3:cpu,cpuacct:/docker/x\n";
  EXPECT_EQ(cgroup_cpu_limit(self, mount_), 0u);
  write("/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cgroup_cpu_limit(self, mount_), 3u);
  EXPECT_EQ(cgroup_cpu_limit("4:cpuset:/docker/x\n", mount_), 0u);
}

}  // namespace
}  // namespace metal_marlin

/* host CHECKPOINT LAYER: a host that keeps memory, threads and messages in its own hands. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign NOLINT(bugprone-reserved-identifier) */
#include <metal_marlin/metal_marlin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 4 };

/* What the callbacks share. They run on several threads at once. */
typedef struct Host {
  pthread_mutex_t mutex;
  size_t bytes_in_use, most_bytes;
  uint32_t tasks_run;
} Host;

static void* host_alloc(void* user, size_t size, size_t align) {
  Host* h = user;
  void* memory = NULL;
  if (posix_memalign(&memory, align < sizeof(void*) ? sizeof(void*) : align, size))
    return NULL; /* becomes MARLIN_E_MEMORY */
  pthread_mutex_lock(&h->mutex);
  h->bytes_in_use += size;
  if (h->bytes_in_use > h->most_bytes) h->most_bytes = h->bytes_in_use;
  pthread_mutex_unlock(&h->mutex);
  return memory;
}

static void host_release(void* user, void* memory, size_t size) {
  Host* h = user;
  pthread_mutex_lock(&h->mutex);
  h->bytes_in_use -= size;
  pthread_mutex_unlock(&h->mutex);
  free(memory);
}

static void host_log(void* user, int32_t level, const char* message) {
  (void)user;
  fprintf(stderr, "%s: %s\n", level == 1 ? "error" : level == 2 ? "warning" : "info", message);
}

typedef struct Share { /* of one thread: every kThreads-th task */
  uint32_t first, tasks;
  void (*task)(void* task_user, uint32_t index);
  void* task_user;
} Share;

static void* run_share(void* argument) {
  const Share* s = argument;
  for (uint32_t i = s->first; i < s->tasks; i += kThreads) s->task(s->task_user, i);
  return NULL;
}

/* Returns when all tasks have run. Here threads come and go; those of llm/pool.cc stay. */
static void host_parallel_for(void* user, uint32_t tasks,
                              void (*task)(void* task_user, uint32_t index), void* task_user) {
  Host* h = user;
  pthread_t threads[kThreads];
  Share shares[kThreads];
  int started[kThreads] = {0};
  for (uint32_t t = 0; t < kThreads; ++t) {
    shares[t] = (Share){.first = t, .tasks = tasks, .task = task, .task_user = task_user};
    started[t] = t > 0 && pthread_create(&threads[t], NULL, run_share, &shares[t]) == 0;
    if (!started[t] && t > 0) run_share(&shares[t]);
  }
  run_share(&shares[0]); /* this thread's */
  for (uint32_t t = 0; t < kThreads; ++t)
    if (started[t]) pthread_join(threads[t], NULL);
  pthread_mutex_lock(&h->mutex);
  h->tasks_run += tasks;
  pthread_mutex_unlock(&h->mutex);
}

/* Multiplies kRows rows of ones: each result is the sum of a row of W. */
static marlin_status multiply(const marlin_weights* weights, marlin_error* error) {
  enum { kRows = 64 };
  marlin_layer_info info = {.struct_size = sizeof info};
  marlin_status status = marlin_weights_info(weights, &info, error);
  if (status) return status;
  float* a = malloc(sizeof *a * kRows * (size_t)info.k);
  float* c = malloc(sizeof *c * kRows * (size_t)info.n);
  for (int64_t i = 0; a && i < kRows * info.k; ++i) a[i] = 1;
  const marlin_gemm_desc desc = {
      .struct_size = sizeof desc,
      .weights = weights,
      .a = {.data = a, .rows = kRows, .cols = info.k, .dtype = MARLIN_F32},
      .c = {.data = c, .rows = kRows, .cols = info.n, .dtype = MARLIN_F32}};
  status = marlin_gemm(NULL, &desc, error);
  double sum = 0;
  for (int64_t i = 0; !status && i < kRows * info.n; ++i) sum += (double)c[i] / kRows;
  if (!status) printf("the elements of W have the sum %.3f\n", sum);
  free(a), free(c);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: host CHECKPOINT LAYER\n"), 2;
  Host h = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  const marlin_context_desc desc = {.struct_size = sizeof desc,
                                    .threads = kThreads,
                                    .alloc = host_alloc,
                                    .release = host_release,
                                    .log = host_log,
                                    .parallel_for = host_parallel_for,
                                    .user = &h};
  const char* layers[] = {argv[2]};
  const marlin_load_desc load = {.struct_size = sizeof load, .layers = layers, .layer_count = 1};
  marlin_error error = {.struct_size = sizeof error};
  marlin_context* context = NULL;
  marlin_checkpoint* file = NULL;
  marlin_weights* weights = NULL;
  marlin_status status = marlin_context_create(&desc, &context, &error);
  if (!status) status = marlin_checkpoint_open(argv[1], NULL, &file, &error);
  if (!status) status = marlin_weights_load(context, file, &load, &weights, &error);
  if (!status) status = multiply(weights, &error);
  if (status) fprintf(stderr, "%s: %s\n", marlin_status_name(status), error.message);
  marlin_weights_destroy(weights), marlin_checkpoint_destroy(file), marlin_context_destroy(context);
  printf("memory of the host was used: %s, and all of it came back: %s\n",
         h.most_bytes ? "yes" : "no", h.bytes_in_use ? "no" : "yes");
  printf("threads of the host were used: %s\n", h.tasks_run ? "yes" : "no");
  return status != MARLIN_OK;
}

/* pool CHECKPOINT: some tokens through the MLP of a Llama, y = W_down (silu(W_gate x) * W_up x), on
 * the threads that the host has already: the library starts none. */
#include <metal_marlin/metal_marlin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 4, kTokens = 6 };

/* The pool of an engine: kThreads - 1 threads that wait for work, and the one that brings it. */
typedef struct Pool {
  pthread_mutex_t busy;  /* one batch of tasks at a time */
  pthread_mutex_t mutex; /* guards all that follows */
  pthread_cond_t more_work, all_done;
  pthread_t threads[kThreads - 1];
  int thread_count, stop;
  void (*task)(void* task_user, uint32_t index);
  void* task_user;
  uint32_t tasks, next, done;
  uint64_t done_before; /* in earlier batches */
} Pool;

/* Runs tasks until none is left to begin. The mutex is locked before and after. */
static void run_tasks(Pool* p) {
  while (p->next < p->tasks) {
    const uint32_t index = p->next++;
    pthread_mutex_unlock(&p->mutex);
    p->task(p->task_user, index);
    pthread_mutex_lock(&p->mutex);
    if (++p->done == p->tasks) pthread_cond_signal(&p->all_done);
  }
}

static void* pool_thread(void* argument) {
  Pool* p = argument;
  pthread_mutex_lock(&p->mutex);
  while (!p->stop) {
    run_tasks(p);
    pthread_cond_wait(&p->more_work, &p->mutex);
  }
  pthread_mutex_unlock(&p->mutex);
  return NULL;
}

static void pool_start(Pool* p) {
  while (p->thread_count < kThreads - 1 &&
         pthread_create(&p->threads[p->thread_count], NULL, pool_thread, p) == 0)
    ++p->thread_count; /* fewer threads are slower, and right */
}

static void pool_stop(Pool* p) {
  pthread_mutex_lock(&p->mutex);
  p->stop = 1;
  pthread_cond_broadcast(&p->more_work);
  pthread_mutex_unlock(&p->mutex);
  while (p->thread_count > 0) pthread_join(p->threads[--p->thread_count], NULL);
}

/* marlin_context_desc::parallel_for: returns when all tasks have run. */
static void pool_parallel_for(void* user, uint32_t tasks,
                              void (*task)(void* task_user, uint32_t index), void* task_user) {
  Pool* p = user;
  pthread_mutex_lock(&p->busy);
  pthread_mutex_lock(&p->mutex);
  p->task = task, p->task_user = task_user;
  p->tasks = tasks, p->next = p->done = 0;
  pthread_cond_broadcast(&p->more_work);
  run_tasks(p);
  while (p->done < p->tasks) pthread_cond_wait(&p->all_done, &p->mutex);
  p->done_before += tasks;
  pthread_mutex_unlock(&p->mutex);
  pthread_mutex_unlock(&p->busy);
}

static marlin_matrix matrix(float* data, int64_t cols) {
  return (marlin_matrix){.data = data, .rows = kTokens, .cols = cols, .dtype = MARLIN_F32};
}

/* y = f(x W^T); y has half as many columns as W has rows if f takes gate and up. */
static marlin_status multiply(float* x, const marlin_weights* w, marlin_epilogue f, float* y,
                              marlin_error* error) {
  marlin_layer_info info = {.struct_size = sizeof info};
  const marlin_status status = marlin_weights_info(w, &info, error);
  if (status) return status;
  const int64_t columns = f == MARLIN_EPILOGUE_SWIGLU ? info.n / 2 : info.n;
  const marlin_gemm_desc desc = {.struct_size = sizeof desc,
                                 .weights = w,
                                 .epilogue = f,
                                 .a = matrix(x, info.k),
                                 .c = matrix(y, columns)};
  return marlin_gemm(NULL, &desc, error);
}

static marlin_status run_mlp(const marlin_weights* gate_up, const marlin_weights* down,
                             marlin_error* error) {
  marlin_layer_info info = {.struct_size = sizeof info};
  marlin_status status = marlin_weights_info(down, &info, error);
  if (status) return status;
  const size_t width = (size_t)info.n, inner = (size_t)info.k;
  float* x = malloc(sizeof *x * kTokens * width);
  float* hidden = malloc(sizeof *hidden * kTokens * inner);
  float* y = malloc(sizeof *y * kTokens * width);
  if (x && hidden && y) {
    for (size_t i = 0; i < kTokens * width; ++i) x[i] = (float)(i % 7) - 3;
    status = multiply(x, gate_up, MARLIN_EPILOGUE_SWIGLU, hidden, error);
    if (!status) status = multiply(hidden, down, MARLIN_EPILOGUE_NONE, y, error);
    for (size_t t = 0; !status && t < kTokens; t += kTokens - 1) /* the first and the last */
      printf("token %d: y = %.3f ... %.3f\n", (int)t, (double)y[t * width],
             (double)y[t * width + width - 1]);
  }
  free(x), free(hidden), free(y);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: pool CHECKPOINT\n"), 2;
  Pool pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
               .mutex = PTHREAD_MUTEX_INITIALIZER,
               .more_work = PTHREAD_COND_INITIALIZER,
               .all_done = PTHREAD_COND_INITIALIZER};
  pool_start(&pool);
  const marlin_context_desc desc = {.struct_size = sizeof desc,
                                    .threads = kThreads,
                                    .parallel_for = pool_parallel_for,
                                    .user = &pool};
  /* Two names give one handle: all gate rows first, then all up rows. */
  const char* wide[] = {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"};
  const char* narrow[] = {"blk.0.ffn_down.weight"};
  const marlin_load_desc load_wide = {
      .struct_size = sizeof load_wide, .layers = wide, .layer_count = 2};
  const marlin_load_desc load_narrow = {
      .struct_size = sizeof load_narrow, .layers = narrow, .layer_count = 1};
  marlin_error error = {.struct_size = sizeof error};
  marlin_context* context = NULL;
  marlin_checkpoint* file = NULL;
  marlin_weights *gate_up = NULL, *down = NULL;
  marlin_status status = marlin_context_create(&desc, &context, &error);
  if (!status) status = marlin_checkpoint_open(argv[1], NULL, &file, &error);
  if (!status) status = marlin_weights_load(context, file, &load_wide, &gate_up, &error);
  if (!status) status = marlin_weights_load(context, file, &load_narrow, &down, &error);
  if (!status) status = run_mlp(gate_up, down, &error);
  if (status) fprintf(stderr, "%s: %s\n", marlin_status_name(status), error.message);
  marlin_weights_destroy(gate_up), marlin_weights_destroy(down);
  marlin_checkpoint_destroy(file), marlin_context_destroy(context);
  pool_stop(&pool);
  printf("the pool of the host ran the tasks: %s\n", pool.done_before ? "yes" : "no");
  return status != MARLIN_OK;
}

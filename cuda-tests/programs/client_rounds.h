// SPDX-License-Identifier: Apache-2.0
// Many rounds of allocations of the steerable client: races of threads and of processes, and random loops. Included by
// client.c only.
struct race { pthread_barrier_t *barrier; CUcontext context; size_t bytes; int rounds; int *won; };

static void *racer(void *argument) {
  struct race *race = argument;
  cu.cuCtxSetCurrent(race->context);
  for (int round = 0; round < race->rounds; round++) {
    CUdeviceptr p = 0;
    pthread_barrier_wait(race->barrier);
    CUresult r = cu.cuMemAlloc_v2(&p, race->bytes);
    if (r == 0) __atomic_add_fetch(&race->won[round], 1, __ATOMIC_SEQ_CST);
    else if (r != 2) __atomic_add_fetch(&race->won[round], 1000, __ATOMIC_SEQ_CST);
    pthread_barrier_wait(race->barrier);
    if (r == 0) cu.cuMemFree_v2(p);
  }
  return NULL;
}

static void histogram(const char *what, const int *won, int rounds) {
  int zero = 0, one = 0, two = 0, more = 0;
  for (int i = 0; i < rounds; i++) {
    if (won[i] == 0) zero++;
    else if (won[i] == 1) one++;
    else if (won[i] == 2) two++;
    else more++;
  }
  printf("%s none=%d one=%d two=%d other=%d\n", what, zero, one, two, more);
}

// Threads of this process, each asking `bytes` at a barrier, `rounds` times.
static void race_threads(int threads, int rounds, size_t bytes) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, threads);
  int *won = calloc(rounds, sizeof *won);
  CUcontext current = NULL;
  cu.cuCtxGetCurrent(&current);
  struct race race = {&barrier, current, bytes, rounds, won};
  pthread_t ids[64];
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, racer, &race);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  histogram("race", won, rounds);
  free(won);
}

// The same among processes that name the same file: a barrier and the tally live in it. `parties` processes, this one
// asks `bytes`; whoever arrives first makes the file whole under an exclusive lock.
struct arena { pthread_barrier_t barrier; int ready; int won[100000]; };

static void race_processes(const char *file, int parties, int rounds, size_t bytes) {
  int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fd < 0 || fcntl(fd, F_SETLKW, &lock)) die(file);
  if (ftruncate(fd, sizeof(struct arena))) die("ftruncate");
  struct arena *arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (arena == MAP_FAILED) die("mmap");
  if (!arena->ready) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&arena->barrier, &shared, parties);
    arena->ready = 1;
  }
  lock.l_type = F_UNLCK;
  fcntl(fd, F_SETLKW, &lock);
  int mine = 0, odd = 0;
  for (int round = 0; round < rounds; round++) {
    CUdeviceptr p = 0;
    pthread_barrier_wait(&arena->barrier);
    CUresult r = cu.cuMemAlloc_v2(&p, bytes);
    if (r == 0) { mine++; __atomic_add_fetch(&arena->won[round], 1, __ATOMIC_SEQ_CST); }
    else if (r != 2) { odd++; }
    pthread_barrier_wait(&arena->barrier);
    if (r == 0) cu.cuMemFree_v2(p);
    pthread_barrier_wait(&arena->barrier);
  }
  printf("prace mine=%d odd=%d ", mine, odd);
  histogram("all", arena->won, rounds);
}

static int alloc_free_loop(long rounds, size_t bytes, unsigned seed) {
  // Random sizes up to `bytes`, up to 16 alive; endless when rounds is 0 (the test kills us).
  CUdeviceptr alive[16] = {0};
  size_t sizes[16] = {0};
  long denied = 0;
  for (long i = 0; rounds == 0 || i < rounds; i++) {
    int k = rand_r(&seed) % 16;
    if (alive[k]) {
      if (cu.cuMemFree_v2(alive[k])) return 1;
      alive[k] = 0;
    } else {
      sizes[k] = 512 + (((size_t)rand_r(&seed) * 2654435761u) % bytes & ~(size_t)511);
      CUresult r = cu.cuMemAlloc_v2(&alive[k], sizes[k]);
      if (r == 2) { denied++; alive[k] = 0; }
      else if (r) return 1;
    }
  }
  for (int k = 0; k < 16; k++) if (alive[k]) cu.cuMemFree_v2(alive[k]);
  printf("loop denied=%ld\n", denied);
  return 0;
}

// As above, but what is alive stays alive for the next time. Denials and failures are told apart.
static void churn(long rounds, size_t bytes, unsigned seed) {
  static CUdeviceptr alive[16];
  long denied = 0, failed = 0, other = 0;
  for (long i = 0; i < rounds; i++) {
    int k = rand_r(&seed) % 16;
    CUresult r;
    if (alive[k]) {
      r = cu.cuMemFree_v2(alive[k]);
      if (!r) alive[k] = 0;
    } else {
      r = cu.cuMemAlloc_v2(&alive[k], 1 + ((size_t)rand_r(&seed) * 2654435761u) % bytes);
      if (r) alive[k] = 0;
    }
    denied += r == 2;
    failed += r == 999;
    other += r && r != 2 && r != 999;
  }
  printf("churn denied=%ld failed=%ld other=%ld\n", denied, failed, other);
}

// SPDX-License-Identifier: Apache-2.0
// The patterns of time_client.c whose devices wait for each other. Included by it only.

// The words that ranks share. A rank's round is written by its device.
struct meeting {
  _Atomic uint64_t rounds[MOST];
  // The last round, once the first rank knows it; and whether somebody wants to end.
  _Atomic uint64_t last, want;
};

struct rank {
  struct worker work;
  struct meeting *meeting;
  deviceptr words;
  handle wait;
  int number, ranks;
};

static void prepare_rank(struct rank *r, struct meeting *meeting, int number, int ranks, uint64_t ns, int device) {
  r->meeting = meeting;
  r->number = number;
  r->ranks = ranks;
  CALL(cuCtxCreate_v2, &r->work.context, 0, device);
  prepare(&r->work, ns);
  r->wait = kernel("time_kernels.ptx", "spin_until");
}

// All ranks launch the same rounds: rank 0 names the last round, so far ahead that no rank has launched more. The
// other ranks are at most a ring ahead of rank 0, because none of their rounds ends before the same round of rank 0 has
// begun.
static int is_last(struct rank *r, uint64_t round) {
  if (is_over) r->meeting->want = 1;
  uint64_t last = r->meeting->last;
  if (r->number == 0 && !last && r->meeting->want) r->meeting->last = last = round + 2 * RING;
  return last && round > last;
}

static void *take_part(void *argument) {
  struct rank *r = argument;
  struct worker *w = &r->work;
  CALL(cuCtxSetCurrent, w->context);
  record(w, w->first);
  for (uint64_t round = 1; !is_last(r, round); round++) {
    make_room(w);
    if (w->ns) spin(w);
    CALL(cuStreamWriteValue64_v2, w->stream, r->words + 8 * r->number, round, 0);
    for (int peer = 0; peer < r->ranks; peer++) {
      deviceptr word = r->words + 8 * peer;
      void *arguments[] = {&word, &round};
      if (peer != r->number) CALL(cuLaunchKernel, r->wait, 1, 1, 1, 1, 1, 1, 0, w->stream, arguments, NULL);
    }
    w->units++;
    record(w, w->ring[w->batches++ % RING]);
  }
  drain(w);
  return NULL;
}

static struct meeting *meet(const char *file) {
  int fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : memfd_create("meeting", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, PAGE)) { perror(file ? file : "memfd"); exit(70); }
  void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) { perror("mmap"); exit(70); }
  return page;
}

static int end_ranks(const char *pattern, struct rank *ranks, int count) {
  struct worker workers[MOST];
  int is_right = 1;
  for (int i = 0; i < count; i++) {
    workers[i] = ranks[i].work;
    for (int peer = 0; peer < ranks[i].ranks; peer++) is_right &= ranks[i].meeting->rounds[peer] == ranks[i].work.units;
  }
  return report(pattern, workers, count, is_right);
}

static int collective(uint64_t ns, int count, char **devices) {
  static struct rank ranks[MOST];
  struct meeting *meeting = meet(NULL);
  for (int i = 0; i < count; i++) prepare_rank(&ranks[i], meeting, i, count, ns, atoi(devices[i]));
  CALL(cuMemHostRegister_v2, meeting, PAGE, 3);
  CALL(cuMemHostGetDevicePointer_v2, &ranks[0].words, meeting, 0);
  pthread_t ids[MOST];
  for (int i = 0; i < count; i++) {
    ranks[i].words = ranks[0].words;
    pthread_create(&ids[i], NULL, take_part, &ranks[i]);
  }
  for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
  return end_ranks("collective", ranks, count);
}

static int rank(uint64_t ns, const char *file, int number, int count, int device) {
  static struct rank r;
  struct meeting *meeting = meet(file);
  prepare_rank(&r, meeting, number, count, ns, device);
  CALL(cuMemHostRegister_v2, meeting, PAGE, 3);
  CALL(cuMemHostGetDevicePointer_v2, &r.words, meeting, 0);
  take_part(&r);
  return end_ranks("rank", &r, 1);
}

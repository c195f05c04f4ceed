// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client that mix every family of allocations. Included by client.c only, after the families.
//
//   mix THREADS ROUNDS BYTES SEED     threads that allocate and free at random; everything is free at the end
//   mixkeep ROUNDS BYTES SEED         one thread, and what is alive stays alive for the next time; `mixend` frees it
//   mixerrno BYTES                    makes and frees one of each family; names those whose calls left a trace in errno
//
// Answers count the codes: `denied` is 2, `failed` is 999 (which a test injects), `other` is any other but 0.
enum family { LINEAR, PITCHED, MANAGED, ARRAY, MIPMAP, PHYSICAL, DEFAULT_POOL, CUSTOM_POOL, FAMILIES };
struct held_thing { enum family family; CUdeviceptr address; void *handle; vhandle physical; size_t bytes; };
enum { ALIVE = 8 };
struct mixer {
  CUcontext context; CUhandle stream, pool; struct held_thing alive[ALIVE]; unsigned char is_alive[ALIVE];
  long rounds, denied, failed, other; size_t bytes; unsigned seed;
};

static CUresult mix_allocate(struct mixer *m, struct held_thing *t, enum family family, size_t bytes) {
  memset(t, 0, sizeof *t);
  t->family = family;
  t->bytes = bytes;
  size_t pitch = 0, page = 2 << 20, rows = (bytes + page - 1) / page * page;
  struct array3d_description shape = {.width = 64, .height = bytes / 1024 + 1, .format = 0x20, .channels = 4};
  struct allocation_properties device = on_device(0);
  CUresult r;
  switch (family) {
    case LINEAR: return cu.cuMemAlloc_v2(&t->address, bytes);
    case PITCHED: return cu.cuMemAllocPitch_v2(&t->address, &pitch, 1000, bytes / 1024 + 1, 4);
    case MANAGED: return cu.cuMemAllocManaged(&t->address, bytes, 1);
    case ARRAY: return vm.cuArray3DCreate_v2(&t->handle, &shape);
    case MIPMAP: return vm.cuMipmappedArrayCreate(&t->handle, &shape, 4);
    case PHYSICAL:
      // Mapped and released at once: the mapping alone holds it.
      t->bytes = rows;
      if ((r = vm.cuMemCreate(&t->physical, rows, &device, 0))) return r;
      if ((r = vm.cuMemAddressReserve(&t->address, rows, 0, 0, 0))) { vm.cuMemRelease(t->physical); return r; }
      if ((r = vm.cuMemMap(t->address, rows, 0, t->physical, 0))) {
        vm.cuMemAddressFree(t->address, rows); vm.cuMemRelease(t->physical); return r;
      }
      // A release that fails is tried again when the thing goes.
      if (!vm.cuMemRelease(t->physical)) t->physical = 0;
      return 0;
    case DEFAULT_POOL: return alloc_async(&t->address, bytes, NULL, m->stream);
    default: return alloc_async(&t->address, bytes, m->pool, m->stream);
  }
}

// 0 when it is gone.
static CUresult mix_free(struct mixer *m, struct held_thing *t) {
  CUresult r;
  switch (t->family) {
    case LINEAR: case PITCHED: case MANAGED: return cu.cuMemFree_v2(t->address);
    case ARRAY: return vm.cuArrayDestroy(t->handle);
    case MIPMAP: return vm.cuMipmappedArrayDestroy(t->handle);
    case PHYSICAL:
      if (t->handle == NULL) { if ((r = vm.cuMemUnmap(t->address, t->bytes))) return r; t->handle = t; }
      if (t->physical) { if ((r = vm.cuMemRelease(t->physical))) return r; t->physical = 0; }
      return vm.cuMemAddressFree(t->address, t->bytes);
    default: return free_async(t->address, m->stream);
  }
}

static void mix_rounds(struct mixer *m) {
  for (long i = 0; i < m->rounds; i++) {
    int k = rand_r(&m->seed) % ALIVE;
    CUresult r;
    if (m->is_alive[k]) {
      r = mix_free(m, &m->alive[k]);
      m->is_alive[k] = r != 0;
    } else {
      size_t bytes = 1 + ((size_t)rand_r(&m->seed) * 2654435761u) % m->bytes;
      r = mix_allocate(m, &m->alive[k], rand_r(&m->seed) % FAMILIES, bytes);
      m->is_alive[k] = r == 0;
    }
    m->denied += r == 2;
    m->failed += r == 999;
    m->other += r && r != 2 && r != 999;
    if (rand_r(&m->seed) % 64 == 0) stream_sync(m->stream);
  }
}

// Injected failures may hit the clean-up too: everything is tried until it is gone.
static void mix_end(struct mixer *m) {
  for (int round = 0; round < 100; round++)
    for (int k = 0; k < ALIVE; k++)
      if (m->is_alive[k]) m->is_alive[k] = mix_free(m, &m->alive[k]) != 0;
  for (int round = 0; round < 100 && stream_sync(m->stream); round++) {}
  for (int round = 0; round < 100 && CALL(cuMemPoolTrimTo, (CUhandle, size_t), m->pool, 0); round++) {}
  CUhandle pool = pool_named("default");
  for (int round = 0; round < 100 && CALL(cuMemPoolTrimTo, (CUhandle, size_t), pool, 0); round++) {}
}

static void mix_begin(struct mixer *m) {
  struct pool_props props = {.alloc_type = 1, .location_type = 1};
  cu.cuCtxSetCurrent(m->context);
  for (int round = 0; round < 100 && CALL(cuStreamCreate, (CUhandle *, unsigned), &m->stream, 1); round++) {}
  CUresult r = 1;
  for (int round = 0; r && round < 100; round++)
    r = CALL(cuMemPoolCreate, (CUhandle *, const struct pool_props *), &m->pool, &props);
}

static void *mix_thread(void *argument) {
  struct mixer *m = argument;
  mix_begin(m);
  mix_rounds(m);
  mix_end(m);
  for (int round = 0; round < 100 && CALL(cuMemPoolDestroy, (CUhandle), m->pool); round++) {}
  CALL(cuStreamDestroy_v2, (CUhandle), m->stream);
  return NULL;
}

// One of each family is made and freed, with a synchronisation; the first round finds the symbols. Two rounds count,
// because what is refunded later may be refunded by the next call.
static void mix_errno(struct mixer *m, size_t bytes) {
  static const char *names[] = {"linear", "pitched",  "managed",      "array",
                                "mipmap", "physical", "default pool", "custom pool"};
  static const char *calls[] = {"make", "free", "sync"};
  enum { MARK = 77 };
  CUresult codes = 0;
  char said[512] = "";
  for (int round = 0; round < 3; round++)
    for (int family = 0; family < FAMILIES; family++) {
      struct held_thing thing;
      int after[3];
      errno = MARK; codes |= mix_allocate(m, &thing, family, bytes); after[0] = errno;
      errno = MARK; codes |= mix_free(m, &thing); after[1] = errno;
      errno = MARK; codes |= stream_sync(m->stream); after[2] = errno;
      for (int call = 0; round && call < 3; call++)
        if (after[call] != MARK)
          snprintf(said + strlen(said), sizeof said - strlen(said), " %s:%s", names[family], calls[call]);
    }
  printf("mixerrno %d%s\n", codes, said);
}

static int mix_command(const char *verb, char *a, char *b, char *c, char *d) {
  static struct mixer kept_mixer;
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  unsigned long long z = c ? strtoull(c, NULL, 0) : 0;
  CUcontext current = NULL;
  if (strncmp(verb, "mix", 3)) return 0;
  reach_vmm();
  cu.cuCtxGetCurrent(&current);
  if (!strcmp(verb, "mix")) {
    struct mixer *mixers = calloc(x, sizeof *mixers);
    pthread_t ids[64];
    long denied = 0, failed = 0, other = 0;
    for (unsigned i = 0; i < x && i < 64; i++) {
      unsigned seed = (d ? strtoul(d, NULL, 0) : 1) + 977 * i;
      mixers[i] = (struct mixer){.context = current, .rounds = y, .bytes = z, .seed = seed};
      pthread_create(&ids[i], NULL, mix_thread, &mixers[i]);
    }
    for (unsigned i = 0; i < x && i < 64; i++) {
      pthread_join(ids[i], NULL);
      denied += mixers[i].denied, failed += mixers[i].failed, other += mixers[i].other;
    }
    free(mixers);
    printf("mix denied=%ld failed=%ld other=%ld\n", denied, failed, other);
  } else if (!strcmp(verb, "mixkeep")) {
    if (!kept_mixer.stream) { kept_mixer.context = current; mix_begin(&kept_mixer); }
    kept_mixer.rounds = x; kept_mixer.bytes = y; kept_mixer.seed = z;
    kept_mixer.denied = kept_mixer.failed = kept_mixer.other = 0;
    mix_rounds(&kept_mixer);
    printf("mixkeep denied=%ld failed=%ld other=%ld\n", kept_mixer.denied, kept_mixer.failed, kept_mixer.other);
  } else if (!strcmp(verb, "mixerrno")) {
    struct mixer m = {.context = current};
    mix_begin(&m);
    mix_errno(&m, x);
  } else if (!strcmp(verb, "mixend")) {
    mix_end(&kept_mixer);
    printf("mixend\n");
  } else {
    return 0;
  }
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for virtual memory management and arrays. Included by client.c only.
//
//   create BYTES NAME [DEVICE]        cuMemCreate on a device (0), or on the host: h, numa
//   vrelease NAME / vretain NAME AT   cuMemRelease; cuMemRetainAllocationHandle of what is mapped at AT, as NAME
//   vreserve BYTES NAME / vunreserve NAME
//   vmap NAME OFFSET HANDLE / vunmap NAME OFFSET BYTES     into and out of the reserved range NAME
//   vcycles ROUNDS BYTES              create, map, release, unmap; then map twice and remap, over and over
//   array W H D FORMAT CHANNELS FLAGS NAME / mipmap W H D FORMAT CHANNELS FLAGS LEVELS NAME
//   array1 W H FORMAT CHANNELS NAME   cuArrayCreate_v2
//   arrayfree NAME / mipmapfree NAME / level NAME INDEX OTHER / arraynull
struct location { int kind, id; };
struct allocation_properties {
  int kind, handle_types;
  struct location location;
  void *win32;
  unsigned char flags[8];
};
struct array_description { size_t width, height; int format; unsigned channels; };
struct array3d_description { size_t width, height, depth; int format; unsigned channels, flags; };
typedef unsigned long long vhandle;

#define VMM(X) \
  X(cuMemGetAllocationGranularity, (size_t *, const struct allocation_properties *, int)) \
  X(cuMemCreate, (vhandle *, size_t, const struct allocation_properties *, unsigned long long)) \
  X(cuMemRelease, (vhandle)) \
  X(cuMemRetainAllocationHandle, (vhandle *, void *)) \
  X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
  X(cuMemAddressFree, (CUdeviceptr, size_t)) \
  X(cuMemMap, (CUdeviceptr, size_t, size_t, vhandle, unsigned long long)) \
  X(cuMemUnmap, (CUdeviceptr, size_t)) \
  X(cuArrayCreate_v2, (void **, const struct array_description *)) \
  X(cuArray3DCreate_v2, (void **, const struct array3d_description *)) \
  X(cuMipmappedArrayCreate, (void **, const struct array3d_description *, unsigned)) \
  X(cuMipmappedArrayGetLevel, (void **, void *, unsigned)) \
  X(cuArrayDestroy, (void *)) \
  X(cuMipmappedArrayDestroy, (void *))

#define VMM_FIELD(name, args) CUresult(*name) args;
static struct { VMM(VMM_FIELD) } vm;

static void reach_vmm(void) {
  if (vm.cuMemCreate) return;
#define VMM_LOAD(name, args) \
  *(void **)&vm.name = dlsym(driver_handle ? driver_handle : RTLD_DEFAULT, #name); \
  if (!vm.name) die(#name);
  VMM(VMM_LOAD)
}

static struct allocation_properties on_device(int device) {
  struct allocation_properties p = {.kind = 1, .location = {1, device}};
  return p;
}

// The bytes of a named thing stand in `bytes`, its handle or address in `ptr`.
static void keep(const char *name, uint64_t value, size_t bytes) {
  if (!name) return;
  int i = slot_of(name, 1);
  slots[i].ptr = value;
  slots[i].bytes = bytes;
}

static uint64_t kept(const char *name) {
  int i = slot_of(name ? name : "", 0);
  return i < 0 ? 0 : slots[i].ptr;
}

static size_t kept_bytes(const char *name) {
  int i = slot_of(name ? name : "", 0);
  return i < 0 ? 0 : slots[i].bytes;
}

static void forget(const char *name) {
  int i = slot_of(name ? name : "", 0);
  if (i >= 0) slots[i].name[0] = 0;
}

static CUresult vmm_cycles(long rounds, size_t bytes) {
  CUdeviceptr range = 0;
  struct allocation_properties p = on_device(0);
  CUresult r = vm.cuMemAddressReserve(&range, 2 * bytes, 0, 0, 0);
  for (long i = 0; i < rounds && !r; i++) {
    vhandle h = 0;
    if ((r = vm.cuMemCreate(&h, bytes, &p, 0))) break;
    if ((r = vm.cuMemMap(range, bytes, 0, h, 0))) break;
    if (i % 3 == 0) {
      // Released first, the mapping alone keeps it; the handle comes back and goes again.
      if ((r = vm.cuMemRelease(h)) || (r = vm.cuMemRetainAllocationHandle(&h, (void *)range))) break;
      if ((r = vm.cuMemUnmap(range, bytes)) || (r = vm.cuMemMap(range + bytes, bytes, 0, h, 0))) break;
      if ((r = vm.cuMemRelease(h)) || (r = vm.cuMemUnmap(range + bytes, bytes))) break;
    } else {
      // Mapped twice, unmapped by one call.
      if ((r = vm.cuMemMap(range + bytes, bytes, 0, h, 0)) || (r = vm.cuMemUnmap(range, 2 * bytes))) break;
      if ((r = vm.cuMemRelease(h))) break;
    }
    if (i % 64 == 63 && ((r = vm.cuMemAddressFree(range, 2 * bytes)) ||
                         (r = vm.cuMemAddressReserve(&range, 2 * bytes, 0, 0, 0)))) break;
  }
  return r ? r : vm.cuMemAddressFree(range, 2 * bytes);
}

// Answers whether the verb was one of these. `more` is the rest of the line after four words.
static int vmm_command(const char *verb, char *a, char *b, char *c, char *d, char *more) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  if (!strcmp(verb, "granularity")) {
    reach_vmm();
    struct allocation_properties p = on_device(x);
    size_t n = 0; CUresult r = vm.cuMemGetAllocationGranularity(&n, &p, 0);
    printf("granularity %d %zu\n", r, n);
  } else if (!strcmp(verb, "create")) {
    reach_vmm();
    struct allocation_properties p = on_device(c ? atoi(c) : 0);
    if (c && c[0] == 'h') p.location = (struct location){2, 0};
    if (c && c[0] == 'n') p.location = (struct location){3, 0};
    vhandle h = 0; CUresult r = vm.cuMemCreate(&h, x, &p, 0);
    if (!r) keep(b, h, x);
    printf("create %d\n", r);
  } else if (!strcmp(verb, "createnull")) {
    reach_vmm();
    struct allocation_properties p = on_device(0); vhandle h = 0;
    CUresult first = vm.cuMemCreate(NULL, x, &p, 0), second = vm.cuMemCreate(&h, x, NULL, 0);
    CUresult third = vm.cuMemCreate(&h, 0, &p, 0);
    p.kind = 77; CUresult fourth = vm.cuMemCreate(&h, x, &p, 0);
    p = on_device(99); CUresult fifth = vm.cuMemCreate(&h, x, &p, 0);
    printf("createnull %d %d %d %d %d\n", first, second, third, fourth, fifth);
  } else if (!strcmp(verb, "vrelease") || !strcmp(verb, "vreleasekeep")) {
    reach_vmm();
    CUresult r = vm.cuMemRelease(kept(a));
    if (!r && !verb[8]) forget(a);
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "vretain")) {
    reach_vmm();
    vhandle h = 0; CUresult r = vm.cuMemRetainAllocationHandle(&h, (void *)(kept(b) + (c ? strtoull(c, NULL, 0) : 0)));
    if (!r) keep(a, h, 0);
    printf("vretain %d\n", r);
  } else if (!strcmp(verb, "vreserve")) {
    reach_vmm();
    CUdeviceptr p = 0; CUresult r = vm.cuMemAddressReserve(&p, x, 0, 0, 0);
    if (!r) keep(b, p, x);
    printf("vreserve %d\n", r);
  } else if (!strcmp(verb, "vunreserve")) {
    reach_vmm();
    CUresult r = vm.cuMemAddressFree(kept(a), kept_bytes(a));
    if (!r) forget(a);
    printf("vunreserve %d\n", r);
  } else if (!strcmp(verb, "vmap")) {
    reach_vmm();
    size_t bytes = d ? strtoull(d, NULL, 0) : kept_bytes(c);
    printf("vmap %d\n", vm.cuMemMap(kept(a) + y, bytes, 0, kept(c), 0));
  } else if (!strcmp(verb, "vunmap")) {
    reach_vmm();
    printf("vunmap %d\n", vm.cuMemUnmap(kept(a) + y, c ? strtoull(c, NULL, 0) : kept_bytes(a)));
  } else if (!strcmp(verb, "vcycles")) {
    reach_vmm();
    printf("vcycles %d\n", vmm_cycles(x, y));
  } else if (!strcmp(verb, "array1")) {
    reach_vmm();
    struct array_description w = {x, y, c ? atoi(c) : 0, d ? atoi(d) : 0};
    void *h = NULL; CUresult r = vm.cuArrayCreate_v2(&h, &w);
    char *name = strtok(more, " \n");
    if (!r) keep(name, (uint64_t)h, 0);
    printf("array1 %d\n", r);
  } else if (!strcmp(verb, "array") || !strcmp(verb, "mipmap")) {
    reach_vmm();
    struct array3d_description w = {x, y, c ? strtoull(c, NULL, 0) : 0, d ? atoi(d) : 0, 0, 0};
    char *save = NULL, *word = more ? strtok_r(more, " \n", &save) : NULL;
    w.channels = word ? atoi(word) : 0;
    word = word ? strtok_r(NULL, " \n", &save) : NULL;
    w.flags = word ? strtoul(word, NULL, 0) : 0;
    unsigned levels = 0;
    if (verb[0] == 'm') { word = strtok_r(NULL, " \n", &save); levels = word ? atoi(word) : 0; }
    word = strtok_r(NULL, " \n", &save);
    void *h = NULL;
    CUresult r = verb[0] == 'm' ? vm.cuMipmappedArrayCreate(&h, &w, levels) : vm.cuArray3DCreate_v2(&h, &w);
    if (!r) keep(word, (uint64_t)h, 0);
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "arraynull")) {
    reach_vmm();
    struct array_description w = {16, 16, 32, 1}; void *h = NULL;
    struct array3d_description w3 = {16, 16, 0, 32, 1, 0};
    CUresult first = vm.cuArrayCreate_v2(NULL, &w), second = vm.cuArrayCreate_v2(&h, NULL);
    CUresult third = vm.cuArray3DCreate_v2(NULL, &w3), fourth = vm.cuMipmappedArrayCreate(&h, NULL, 1);
    w.format = 7; CUresult fifth = vm.cuArrayCreate_v2(&h, &w);
    w3.width = 0; CUresult sixth = vm.cuArray3DCreate_v2(&h, &w3);
    printf("arraynull %d %d %d %d %d %d\n", first, second, third, fourth, fifth, sixth);
  } else if (!strcmp(verb, "level")) {
    reach_vmm();
    void *h = NULL; CUresult r = vm.cuMipmappedArrayGetLevel(&h, (void *)kept(a), y);
    if (!r) keep(c, (uint64_t)h, 0);
    printf("level %d\n", r);
  } else if (!strcmp(verb, "arrayfree") || !strcmp(verb, "mipmapfree")) {
    reach_vmm();
    CUresult r = verb[0] == 'm' ? vm.cuMipmappedArrayDestroy((void *)kept(a)) : vm.cuArrayDestroy((void *)kept(a));
    if (!r) forget(a);
    printf("%s %d\n", verb, r);
  } else {
    return 0;
  }
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client that ask NVML, and the forms of the driver's views that no other command uses.
// Included by client.c only. Structures lie between guard bytes; an answer that ends in `over` wrote past its size.
//
//   nvml                        nvmlInit_v2
//   nvmlmem INDEX               total free used of version 1, then of version 2
//   nvmlpolls on|off            a thread that asks for the memory of device 0 all the time
//   nvmlkeep INDEX              takes a handle;  nvmlkept: what it tells by now
//   nvmlrefusals INDEX          memory information with null pointers and wrong version fields
//   nvmllist NAME INDEX ROOM    a process list (compute1 compute2 compute3 graphics mps detail) with that much room
//   nvmlbusy INDEX              utilisation rates, then the pids in the samples of both kinds
//   nvmldevices                 of every device: do all look-ups lead back to it?
//   nvmlother UUID PCI          what the look-ups of a device that is not the job's answer;  pci INDEX: a device's name
//   nvmlnear INDEX ROOM         devices near this one, and those near a processor: code, count and devices, with that
//                               much room (0: none)
//   nvmlnearnull INDEX          what the same two answer to arguments that cannot be
//   oldinfo / oldtotal DEVICE   the forms of the first ABI;  infonull: cuMemGetInfo with null pointers
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_memory2 { unsigned version; unsigned long long total, reserved, free, used; };
struct nvml_process1 { unsigned pid; unsigned long long used; };
struct nvml_process2 { unsigned pid; unsigned long long used; unsigned gpu, compute; };
struct nvml_detail { unsigned pid; unsigned long long used; unsigned gpu, compute; unsigned long long protected_used; };
struct nvml_detail_list { unsigned version, mode, count; struct nvml_detail *entries; };
struct nvml_sample { unsigned pid; unsigned long long time; unsigned sm, mem, enc, dec; };
struct nvml_sample2 { unsigned long long time; unsigned pid, sm, mem, enc, dec, jpg, ofa; };
struct nvml_samples { unsigned version, count; unsigned long long since; struct nvml_sample2 *entries; };
struct nvml_rates { unsigned gpu, memory; };
struct nvml_pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };

#define NVML(X) \
  X(nvmlInit_v2, (void)) \
  X(nvmlDeviceGetCount_v2, (unsigned *)) \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **)) \
  X(nvmlDeviceGetHandleByUUID, (const char *, void **)) \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, void **)) \
  X(nvmlDeviceGetUUID, (void *, char *, unsigned)) \
  X(nvmlDeviceGetPciInfo_v3, (void *, struct nvml_pci *)) \
  X(nvmlDeviceGetIndex, (void *, unsigned *)) \
  X(nvmlDeviceGetTopologyNearestGpus, (void *, int, unsigned *, void **)) \
  X(nvmlSystemGetTopologyGpuSet, (unsigned, unsigned *, void **)) \
  X(nvmlDeviceGetMemoryInfo, (void *, struct nvml_memory *)) \
  X(nvmlDeviceGetMemoryInfo_v2, (void *, struct nvml_memory2 *)) \
  X(nvmlDeviceGetComputeRunningProcesses, (void *, unsigned *, void *)) \
  X(nvmlDeviceGetComputeRunningProcesses_v2, (void *, unsigned *, void *)) \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, void *)) \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, (void *, unsigned *, void *)) \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (void *, unsigned *, void *)) \
  X(nvmlDeviceGetRunningProcessDetailList, (void *, struct nvml_detail_list *)) \
  X(nvmlDeviceGetUtilizationRates, (void *, struct nvml_rates *)) \
  X(nvmlDeviceGetProcessUtilization, (void *, struct nvml_sample *, unsigned *, unsigned long long)) \
  X(nvmlDeviceGetProcessesUtilizationInfo, (void *, struct nvml_samples *)) \
  X(nvmlDeviceGetAccountingPids, (void *, unsigned *, unsigned *))

#define NVML_FIELD(name, args) int(*name) args;
static struct { NVML(NVML_FIELD) } nv;

static void reach_nvml(void) {
  if (nv.nvmlInit_v2) return;
  void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!handle) die("libnvidia-ml.so.1");
#define NVML_LOAD(name, args) \
  *(void **)&nv.name = dlsym(handle, #name); \
  if (!nv.name) die(#name);
  NVML(NVML_LOAD)
}

static void *nvml_device(unsigned index) {
  void *device = NULL;
  return nv.nvmlDeviceGetHandleByIndex_v2(index, &device) ? NULL : device;
}

// A place of so many bytes with guards around it.
enum { GUARD = 64, GUARDED = 1 << 16 };
static unsigned char guarded[GUARD + GUARDED + GUARD];
static void *guard(void) { memset(guarded, 0xa5, sizeof guarded); return guarded + GUARD; }
static const char *guards(size_t bytes) {
  for (size_t i = 0; i < sizeof guarded; i++)
    if ((i < GUARD || i >= GUARD + bytes) && guarded[i] != 0xa5) return " over";
  return "";
}

// Who is in a list of `count` entries of `size` bytes with the pid at `offset`.
static void print_pids(const void *entries, unsigned count, size_t size, size_t offset) {
  for (unsigned i = 0; i < count; i++) printf(" %u", *(const unsigned *)((const char *)entries + i * size + offset));
}

static void print_list(const char *name, unsigned index, unsigned room) {
  void *device = nvml_device(index), *entries = guard();
  unsigned count = room;
  size_t size = sizeof(struct nvml_process2);
  int r;
  if (!strcmp(name, "compute1")) {
    size = sizeof(struct nvml_process1);
    r = nv.nvmlDeviceGetComputeRunningProcesses(device, &count, entries);
  } else if (!strcmp(name, "compute2")) r = nv.nvmlDeviceGetComputeRunningProcesses_v2(device, &count, entries);
  else if (!strcmp(name, "graphics")) r = nv.nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, entries);
  else if (!strcmp(name, "mps")) r = nv.nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &count, entries);
  else if (!strcmp(name, "detail")) {
    size = sizeof(struct nvml_detail);
    struct nvml_detail_list list = {sizeof list | 1 << 24, 0, room, entries};
    r = nv.nvmlDeviceGetRunningProcessDetailList(device, &list);
    count = list.count;
  } else r = nv.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, entries);
  printf("nvmllist %d %u", r, count);
  if (!r) print_pids(entries, count, size, 0);
  printf("%s\n", guards(room * size));
}

static void print_busy(unsigned index) {
  void *device = nvml_device(index);
  struct nvml_rates rates = {0, 0};
  struct nvml_sample samples[64];
  struct nvml_sample2 others[64];
  unsigned count = 64, nothing = 0;
  int r = nv.nvmlDeviceGetUtilizationRates(device, &rates);
  printf("nvmlbusy %d %u samples", r, rates.gpu);
  r = nv.nvmlDeviceGetProcessUtilization(device, samples, &count, 0);
  printf(" %d", r);
  if (!r) print_pids(samples, count, sizeof *samples, 0);
  r = nv.nvmlDeviceGetProcessUtilization(device, NULL, &nothing, 0);
  printf(" size %d %u info", r, nothing);
  struct nvml_samples info = {sizeof info | 1 << 24, 64, 0, others};
  r = nv.nvmlDeviceGetProcessesUtilizationInfo(device, &info);
  printf(" %d", r);
  if (!r) print_pids(others, info.count, sizeof *others, offsetof(struct nvml_sample2, pid));
  printf("\n");
}

static void print_devices(void) {
  unsigned count = 0;
  int r = nv.nvmlDeviceGetCount_v2(&count);
  printf("nvmldevices %d %u", r, count);
  for (unsigned i = 0; i < count; i++) {
    char uuid[96] = {0};
    struct nvml_pci pci = {0};
    void *device = nvml_device(i), *by_uuid = NULL, *by_pci = NULL;
    unsigned index = 99;
    int bad = !device || nv.nvmlDeviceGetUUID(device, uuid, sizeof uuid) || nv.nvmlDeviceGetPciInfo_v3(device, &pci);
    bad = bad || nv.nvmlDeviceGetHandleByUUID(uuid, &by_uuid) || nv.nvmlDeviceGetHandleByPciBusId_v2(pci.name, &by_pci);
    bad = bad || nv.nvmlDeviceGetIndex(device, &index) || by_uuid != device || by_pci != device || index != i;
    printf(" %s %s", bad ? "bad" : "good", uuid);
  }
  printf("\n");
}

// The answer to a list of devices: in `place`, as long as `room`.
static void print_near(int r, unsigned count, unsigned room, void **place) {
  printf(" %d %u", r, count);
  for (unsigned i = 0; !r && place && i < count; i++) {
    char uuid[96] = {0};
    printf(" %s", nv.nvmlDeviceGetUUID(place[i], uuid, sizeof uuid) ? "none" : uuid);
  }
  printf("%s", guards(place ? room * sizeof *place : 0));
}

static void print_refusals(unsigned index) {
  void *device = nvml_device(index);
  struct nvml_memory memory;
  printf("nvmlrefusals %d %d %d", nv.nvmlDeviceGetMemoryInfo(device, NULL), nv.nvmlDeviceGetMemoryInfo(NULL, &memory),
         nv.nvmlDeviceGetMemoryInfo_v2(device, NULL));
  // Versions: none, the right size with other numbers, the first number with a smaller size, and a larger structure.
  unsigned right = sizeof(struct nvml_memory2);
  unsigned versions[] = {0, 1, 2, right, right | 1 << 24, right | 3 << 24,
                         24 | 1 << 24, 24 | 2 << 24, (right + 8) | 2 << 24, ~0u};
  const char *over = "";
  for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++) {
    struct nvml_memory2 *place = guard();
    place->version = versions[i];
    int r = nv.nvmlDeviceGetMemoryInfo_v2(device, place);
    printf(" %d", r);
    // A refused structure keeps every byte but the version that was just written.
    if (*guards(r ? sizeof(unsigned) : right)) over = " over";
  }
  printf(" lists");
  unsigned count = 4;
  printf(" %d", nv.nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, NULL));
  printf(" %d", nv.nvmlDeviceGetComputeRunningProcesses_v3(NULL, &count, guard()));
  struct nvml_detail_list list = {sizeof list | 2 << 24, 0, 4, NULL};
  printf(" %d", nv.nvmlDeviceGetRunningProcessDetailList(device, &list));
  printf(" %d", nv.nvmlDeviceGetRunningProcessDetailList(device, NULL));
  list.version = sizeof list | 1 << 24; list.mode = 77;
  printf(" %d", nv.nvmlDeviceGetRunningProcessDetailList(device, &list));
  struct nvml_samples info = {sizeof info, 4, 0, NULL};
  printf(" %d", nv.nvmlDeviceGetProcessesUtilizationInfo(device, &info));
  printf(" %d", nv.nvmlDeviceGetProcessesUtilizationInfo(device, NULL));
  printf(" %d", nv.nvmlDeviceGetProcessUtilization(device, NULL, NULL, 0));
  printf(" %d %d", nv.nvmlDeviceGetUtilizationRates(device, NULL), nv.nvmlDeviceGetAccountingPids(device, NULL, NULL));
  printf("%s\n", over);
}

// A health thread: asks for the memory of device 0 again and again.
static struct { pthread_t thread; volatile int is_on; unsigned long polls, failed; } polls;
static void *poller(void *unused) {
  while (polls.is_on) {
    struct nvml_memory memory;
    void *device = nvml_device(0);
    polls.failed += !device || nv.nvmlDeviceGetMemoryInfo(device, &memory);
    polls.polls++;
    usleep(500);
  }
  return unused;
}

// What a handle from before tells: code, total, UUID, index, whether its PCI name and its UUID lead to the same device,
// then the pids in its list.
static void *kept_device;
static void print_kept(void) {
  struct nvml_memory memory = {0};
  struct nvml_pci pci = {0};
  struct nvml_process2 entries[8];
  char uuid[96] = {0};
  unsigned index = 99, count = 8;
  void *by_uuid = NULL, *by_pci = NULL;
  int r = nv.nvmlDeviceGetMemoryInfo(kept_device, &memory);
  r = r ? r : nv.nvmlDeviceGetUUID(kept_device, uuid, sizeof uuid);
  r = r ? r : nv.nvmlDeviceGetIndex(kept_device, &index);
  r = r ? r : nv.nvmlDeviceGetPciInfo_v3(kept_device, &pci);
  r = r ? r : nv.nvmlDeviceGetHandleByUUID(uuid, &by_uuid);
  r = r ? r : nv.nvmlDeviceGetHandleByPciBusId_v2(pci.name, &by_pci);
  r = r ? r : nv.nvmlDeviceGetComputeRunningProcesses_v3(kept_device, &count, entries);
  printf("nvmlkept %d %llu %s %u %s", r, memory.total, uuid, index, by_uuid == by_pci ? "same" : "differ");
  if (!r) print_pids(entries, count, sizeof *entries, offsetof(struct nvml_process2, pid));
  printf("\n");
}

static int views_command(const char *verb, char *a, char *b, char *c) {
  unsigned x = a ? strtoul(a, NULL, 0) : 0, y = b ? strtoul(b, NULL, 0) : 0;
  if (!strcmp(verb, "nvml")) {
    reach_nvml();
    printf("nvml %d\n", nv.nvmlInit_v2());
  } else if (!strcmp(verb, "nvmlmem")) {
    reach_nvml();
    struct nvml_memory *one = guard();
    int r = nv.nvmlDeviceGetMemoryInfo(nvml_device(x), one);
    printf("nvmlmem %d %llu %llu %llu%s", r, one->total, one->free, one->used, guards(sizeof *one));
    struct nvml_memory2 *two = guard();
    two->version = sizeof *two | 2 << 24;
    r = nv.nvmlDeviceGetMemoryInfo_v2(nvml_device(x), two);
    printf(" %d %llu %llu %llu%s\n", r, two->total, two->free, two->used, guards(sizeof *two));
  } else if (!strcmp(verb, "nvmlpolls")) {
    // nvmlpolls on|off: whether any was made, and how many failed.
    if (!strcmp(a, "on")) {
      reach_nvml();
      polls.is_on = 1;
      printf("nvmlpolls %d\n", pthread_create(&polls.thread, NULL, poller, NULL));
    } else {
      polls.is_on = 0;
      pthread_join(polls.thread, NULL);
      printf("nvmlpolls %d %lu\n", polls.polls > 0, polls.failed);
    }
  } else if (!strcmp(verb, "nvmlkeep")) {
    reach_nvml();
    printf("nvmlkeep %d\n", !(kept_device = nvml_device(x)));
  } else if (!strcmp(verb, "nvmlkept")) {
    print_kept();
  } else if (!strcmp(verb, "nvmlrefusals")) {
    reach_nvml(); print_refusals(x);
  } else if (!strcmp(verb, "nvmllist")) {
    reach_nvml(); print_list(a, y, c ? strtoul(c, NULL, 0) : 0);
  } else if (!strcmp(verb, "nvmlbusy")) {
    reach_nvml(); print_busy(x);
  } else if (!strcmp(verb, "nvmlnear")) {
    reach_nvml();
    enum { HOST_BRIDGE = 30 };
    unsigned count = y;
    void **near = guard(), **place = y ? near : NULL;
    int r = nv.nvmlDeviceGetTopologyNearestGpus(nvml_device(x), HOST_BRIDGE, &count, place);
    printf("nvmlnear");
    print_near(r, count, y, place);
    guard(); count = y;
    r = nv.nvmlSystemGetTopologyGpuSet(0, &count, place);
    printf(" set");
    print_near(r, count, y, place);
    printf("\n");
  } else if (!strcmp(verb, "nvmlnearnull")) {
    reach_nvml();
    void *device = nvml_device(x), *near[8];
    unsigned count = 8;
    printf("nvmlnearnull");
    printf(" %d", nv.nvmlDeviceGetTopologyNearestGpus(device, 30, NULL, near));
    printf(" %d", nv.nvmlDeviceGetTopologyNearestGpus(device, 31, &count, near));
    printf(" %d", nv.nvmlDeviceGetTopologyNearestGpus(NULL, 30, &count, near));
    printf(" %d\n", nv.nvmlSystemGetTopologyGpuSet(0, NULL, near));
  } else if (!strcmp(verb, "nvmldevices")) {
    reach_nvml(); print_devices();
  } else if (!strcmp(verb, "nvmlother")) {
    // nvmlother UUID PCI: a device that is not the job's, by every name.
    reach_nvml();
    void *device = NULL;
    int uuid = nv.nvmlDeviceGetHandleByUUID(a, &device), pci = nv.nvmlDeviceGetHandleByPciBusId_v2(b, &device);
    unsigned count = 0; nv.nvmlDeviceGetCount_v2(&count);
    printf("nvmlother %d %d %d\n", uuid, pci, nv.nvmlDeviceGetHandleByIndex_v2(count, &device));
  } else if (!strcmp(verb, "pci")) {
    reach_nvml();
    struct nvml_pci pci = {0}; int r = nv.nvmlDeviceGetPciInfo_v3(nvml_device(x), &pci);
    printf("pci %d %s\n", r, pci.name);
  } else if (!strcmp(verb, "oldinfo") || !strcmp(verb, "oldtotal")) {
    void *handle = driver_handle ? driver_handle : RTLD_DEFAULT;
    CUresult (*info)(unsigned *, unsigned *) = (CUresult(*)(unsigned *, unsigned *))dlsym(handle, "cuMemGetInfo");
    CUresult (*total_of)(unsigned *, int) = (CUresult(*)(unsigned *, int))dlsym(handle, "cuDeviceTotalMem");
    unsigned left = 0, all = 0;
    if (!info || !total_of) die(verb);
    CUresult r = verb[3] == 'i' ? info(&left, &all) : total_of(&all, x);
    if (verb[3] == 'i') printf("oldinfo %d %u %u\n", r, left, all); else printf("oldtotal %d %u\n", r, all);
  } else if (!strcmp(verb, "infonull")) {
    size_t left = 7, all = 7;
    CUresult first = cu.cuMemGetInfo_v2(NULL, &all), second = cu.cuMemGetInfo_v2(&left, NULL);
    CUresult third = cu.cuMemGetInfo_v2(NULL, NULL);
    CUresult fourth = cu.cuDeviceTotalMem_v2(NULL, 0), fifth = cu.cuDeviceTotalMem_v2(&all, 99);
    printf("infonull %d %d %d %d %d\n", first, second, third, fourth, fifth);
  } else {
    return 0;
  }
  return 1;
}

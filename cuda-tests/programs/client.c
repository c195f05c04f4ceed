// SPDX-License-Identifier: Apache-2.0
// A CUDA driver API client that does what its standard input says, one command a line, one answer line each.
//
// Tests steer several of these step by step, so that races are staged and not hoped for. How it reaches the driver is
// the first argument ("via"), because that is what an interposer can get wrong; everything else is a command.
// Answers begin with the command's name; a driver result is its number. Unknown commands end the program with 64.
//
//   via: link dlopen abs deepbind dlmopen gpa1 gpa2 weak default cudart
//
// Built without CUDA headers on purpose: the prototypes below are the stable driver ABI.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext;

#define DRIVER(X) \
  X(cuInit, CUresult, (unsigned)) \
  X(cuDriverGetVersion, CUresult, (int *)) \
  X(cuDeviceGetCount, CUresult, (int *)) \
  X(cuDeviceGet, CUresult, (CUdevice *, int)) \
  X(cuDeviceGetUuid, CUresult, (unsigned char *, CUdevice)) \
  X(cuDeviceTotalMem_v2, CUresult, (size_t *, CUdevice)) \
  X(cuCtxCreate_v2, CUresult, (CUcontext *, unsigned, CUdevice)) \
  X(cuCtxDestroy_v2, CUresult, (CUcontext)) \
  X(cuCtxSetCurrent, CUresult, (CUcontext)) \
  X(cuCtxGetCurrent, CUresult, (CUcontext *)) \
  X(cuCtxSynchronize, CUresult, (void)) \
  X(cuDevicePrimaryCtxRetain, CUresult, (CUcontext *, CUdevice)) \
  X(cuDevicePrimaryCtxRelease_v2, CUresult, (CUdevice)) \
  X(cuDevicePrimaryCtxReset_v2, CUresult, (CUdevice)) \
  X(cuMemGetInfo_v2, CUresult, (size_t *, size_t *)) \
  X(cuMemAlloc_v2, CUresult, (CUdeviceptr *, size_t)) \
  X(cuMemAllocPitch_v2, CUresult, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
  X(cuMemAllocManaged, CUresult, (CUdeviceptr *, size_t, unsigned)) \
  X(cuMemFree_v2, CUresult, (CUdeviceptr)) \
  X(cuMemsetD8_v2, CUresult, (CUdeviceptr, unsigned char, size_t)) \
  X(cuMemcpyDtoH_v2, CUresult, (void *, CUdeviceptr, size_t)) \
  X(cuModuleLoadData, CUresult, (void **, const void *)) \
  X(cuModuleGetFunction, CUresult, (void **, void *, const char *)) \
  X(cuLaunchKernel, CUresult, \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
  X(cuGetProcAddress_v2, CUresult, (const char *, void **, int, uint64_t, int *))

typedef CUresult (*get_v1_fn)(const char *, void **, int, uint64_t);
typedef CUresult (*get_v2_fn)(const char *, void **, int, uint64_t, int *);

#define FIELD(name, ret, args) ret(*name) args;
static struct { DRIVER(FIELD) get_v1_fn cuGetProcAddress; } cu;

#if defined(VIA_LINK) || defined(VIA_WEAK)
#ifdef VIA_WEAK
#define LINKAGE __attribute__((weak))
#else
#define LINKAGE
#endif
#define PROTOTYPE(name, ret, args) extern ret name args LINKAGE;
DRIVER(PROTOTYPE)
#endif

static void die(const char *what) {
  const char *why = dlerror();
  fprintf(stderr, "client: %s: %s\n", what, why ? why : strerror(errno));
  exit(65);
}

// Looked up in the first constructor of the program, kept to prove that symbols cached that early are hooked too (built
// with -DCACHE_EARLY). Not from .preinit_array: a dlopen there leaves glibc without an environment.
#ifdef CACHE_EARLY
static void *early_handle;
static void *early_alloc;
__attribute__((constructor(101))) static void cache_early(void) {
  early_handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (early_handle) early_alloc = dlsym(early_handle, "cuMemAlloc_v2");
}
#endif

static void *driver_handle;

static const char *absolute_driver(void) {
  static char path[4096];
  const char *explicit_path = getenv("CLIENT_DRIVER");
  if (explicit_path) return explicit_path;
  // Where the loader would find it, asked of a short-lived look-up that loads nothing else.
  void *h = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  struct link_map *map;
  if (!h || dlinfo(h, RTLD_DI_LINKMAP, &map)) die("find libcuda.so.1");
  if (!realpath(map->l_name, path)) die("realpath");
  return path;
}

static void *opened(void *handle) {
  // A null handle would mean RTLD_DEFAULT to dlsym: say what is missing instead.
  if (!handle) die("libcuda.so.1");
  return handle;
}

static void by_dlsym(void *handle) {
#define LOAD(name, ret, args) \
  *(void **)&cu.name = dlsym(handle, #name); \
  if (!cu.name) die(#name);
  DRIVER(LOAD)
  *(void **)&cu.cuGetProcAddress = dlsym(handle, "cuGetProcAddress");
  driver_handle = handle;
}

// What a runtime does that knows one entry point only: asks names without suffix at the version it was built for.
static void by_proc_address(void *handle, int version) {
  get_v1_fn v1 = (get_v1_fn)dlsym(handle, "cuGetProcAddress");
  get_v2_fn v2 = (get_v2_fn)dlsym(handle, "cuGetProcAddress_v2");
  if (version == 1 ? !v1 : !v2) die("cuGetProcAddress");
#define ASK(name, ret, args) { \
    char base[64]; snprintf(base, sizeof base, "%s", #name); \
    size_t n = strlen(base); \
    if (n > 3 && !strcmp(base + n - 3, "_v2") && strncmp(base, "cuGetProc", 9)) base[n - 3] = 0; \
    if (!strncmp(base, "cuGetProc", 9)) strcpy(base, "cuGetProcAddress"); \
    void *p = NULL; int status = -1; \
    /* cuCtxCreate's ABI changed with 11.4: the prototype above is that of 3.2. */ \
    int built = strcmp(base, "cuCtxCreate") ? 12000 : 3020; \
    CUresult r = version == 1 ? v1(base, &p, built, 0) : v2(base, &p, built, 0, &status); \
    if (r || !p) { fprintf(stderr, "client: %s: %d status %d\n", base, r, status); exit(65); } \
    *(void **)&cu.name = p; }
  DRIVER(ASK)
  cu.cuGetProcAddress = v1;
  driver_handle = handle;
}

static void reach_driver(const char *via) {
#if defined(VIA_LINK)
#define BIND(name, ret, args) cu.name = name;
  DRIVER(BIND)
  *(void **)&cu.cuGetProcAddress = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
#elif defined(VIA_WEAK)
#define BIND(name, ret, args) cu.name = name;
  DRIVER(BIND)
#else
  if (!strcmp(via, "dlopen")) {
    by_dlsym(opened(dlopen("libcuda.so.1", RTLD_NOW)));
  } else if (!strcmp(via, "abs")) {
    by_dlsym(opened(dlopen(absolute_driver(), RTLD_NOW | RTLD_LOCAL)));
  } else if (!strcmp(via, "deepbind")) {
    by_dlsym(opened(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND)));
  } else if (!strcmp(via, "dlmopen")) {
    by_dlsym(opened(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)));
  } else if (!strcmp(via, "gpa1")) {
    by_proc_address(opened(dlopen("libcuda.so.1", RTLD_NOW)), 1);
  } else if (!strcmp(via, "gpa2")) {
    by_proc_address(opened(dlopen("libcuda.so.1", RTLD_NOW)), 2);
  } else if (!strcmp(via, "default")) {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) die("libcuda.so.1");
    by_dlsym(RTLD_DEFAULT);
  } else if (!strcmp(via, "cudart")) {
    // libcudart's start-up: one dlsym, an empty-name probe, cuInit, then two versions of cuGetProcAddress by itself.
    void *h = opened(dlopen("libcuda.so.1", RTLD_NOW)), *p = NULL, *q = NULL;
    int status = -1;
    get_v2_fn get = (get_v2_fn)dlsym(h, "cuGetProcAddress_v2");
    if (!get) die("cuGetProcAddress_v2");
    get("", &p, 12000, 0, &status);
    if (get("cuInit", &p, 2000, 0, &status)) die("cuInit");
    if (get("cuGetProcAddress", &p, 11030, 0, &status) || get("cuGetProcAddress", &q, 12000, 0, &status)) die("gpa");
    if (!p || !q) die("cuGetProcAddress by itself");
    by_proc_address(h, 2);
    get_v2_fn inner = (get_v2_fn)q;
    *(void **)&cu.cuMemAlloc_v2 = NULL;
    if (inner("cuMemAlloc", (void **)&cu.cuMemAlloc_v2, 12000, 2, &status) || !cu.cuMemAlloc_v2) die("cuMemAlloc");
  } else {
    fprintf(stderr, "client: unknown via %s\n", via);
    exit(64);
  }
#endif
#ifdef CACHE_EARLY
  if (early_alloc) *(void **)&cu.cuMemAlloc_v2 = early_alloc;
#endif
}

enum { SLOTS = 4096 };
static struct { char name[32]; CUdeviceptr ptr; size_t bytes; } slots[SLOTS];
static CUcontext contexts[16];

static int slot_of(const char *name, int create) {
  int empty = -1;
  for (int i = 0; i < SLOTS; i++) {
    if (!strcmp(slots[i].name, name)) return i;
    if (empty < 0 && !slots[i].name[0]) empty = i;
  }
  if (create && empty >= 0) snprintf(slots[empty].name, sizeof slots[empty].name, "%s", name);
  return create ? empty : -1;
}

#include "client_views.h"
#include "client_vmm.h"
#include "client_code.h"
#include "client_share.h"

#include "client_rounds.h"

static int count_entries(const char *directory) {
  DIR *d = opendir(directory);
  int n = 0;
  struct dirent *e;
  while (d && (e = readdir(d))) n += e->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

static void print_uuid(const unsigned char *u) {
  printf("GPU-");
  for (int i = 0; i < 16; i++) printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", u[i]);
}

#include "client_pools.h"
#include "client_mix.h"
#include "client_gate.h"
#include "client_ties.h"

static void end_main_thread(void);

static int command(char *line) {
  char *save = NULL, *verb = strtok_r(line, " \n", &save);
  if (!verb || verb[0] == '#') return 0;
  char *a = strtok_r(NULL, " \n", &save), *b = a ? strtok_r(NULL, " \n", &save) : NULL;
  char *c = b ? strtok_r(NULL, " \n", &save) : NULL, *d = c ? strtok_r(NULL, " \n", &save) : NULL;
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  if (pool_command(verb, a, b, c, d) || mix_command(verb, a, b, c, d) || gate_command(verb, a, b) ||
      tie_command(verb, a, b)) {
  } else if (!strcmp(verb, "init")) {
    printf("init %d\n", cu.cuInit(x));
  } else if (!strcmp(verb, "present")) {
    printf("present %d\n", cu.cuInit != NULL);
  } else if (!strcmp(verb, "count")) {
    int n = -1; CUresult r = cu.cuDeviceGetCount(&n);
    printf("count %d %d\n", r, n);
  } else if (!strcmp(verb, "uuid")) {
    CUdevice dev; unsigned char u[16] = {0}; CUresult r = cu.cuDeviceGet(&dev, x);
    if (!r) r = cu.cuDeviceGetUuid(u, dev);
    printf("uuid %d ", r); print_uuid(u); printf("\n");
  } else if (!strcmp(verb, "total")) {
    size_t n = 0; CUresult r = cu.cuDeviceTotalMem_v2(&n, x);
    printf("total %d %zu\n", r, n);
  } else if (!strcmp(verb, "ctx")) {
    // ctx INDEX [DEVICE]: the device is the index when it is not said.
    printf("ctx %d\n", cu.cuCtxCreate_v2(&contexts[x % 16], 0, b ? (CUdevice)y : (CUdevice)x));
  } else if (!strcmp(verb, "use")) {
    printf("use %d\n", cu.cuCtxSetCurrent(contexts[x % 16]));
  } else if (!strcmp(verb, "ctxdestroy")) {
    printf("ctxdestroy %d\n", cu.cuCtxDestroy_v2(contexts[x % 16]));
  } else if (!strcmp(verb, "primary")) {
    CUcontext p; CUresult r = cu.cuDevicePrimaryCtxRetain(&p, x);
    if (!r) r = cu.cuCtxSetCurrent(p);
    printf("primary %d\n", r);
  } else if (!strcmp(verb, "release")) {
    printf("release %d\n", cu.cuDevicePrimaryCtxRelease_v2(x));
  } else if (!strcmp(verb, "reset")) {
    printf("reset %d\n", cu.cuDevicePrimaryCtxReset_v2(x));
  } else if (!strcmp(verb, "info")) {
    size_t free_bytes = 0, total = 0; CUresult r = cu.cuMemGetInfo_v2(&free_bytes, &total);
    printf("info %d %zu %zu\n", r, free_bytes, total);
  } else if (!strcmp(verb, "alloc") || !strcmp(verb, "managed")) {
    CUdeviceptr p = 0; CUresult r = verb[0] == 'a' ? cu.cuMemAlloc_v2(&p, x) : cu.cuMemAllocManaged(&p, x, 1);
    if (!r && b) { int i = slot_of(b, 1); slots[i].ptr = p; slots[i].bytes = x; }
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "allocnull")) {
    printf("allocnull %d\n", cu.cuMemAlloc_v2(NULL, x));
  } else if (!strcmp(verb, "pitch")) {
    CUdeviceptr p = 0; size_t pitch = 0; CUresult r = cu.cuMemAllocPitch_v2(&p, &pitch, x, y, 4);
    if (!r && c) { int i = slot_of(c, 1); slots[i].ptr = p; slots[i].bytes = pitch * y; }
    printf("pitch %d %zu\n", r, pitch);
  } else if (!strcmp(verb, "free") || !strcmp(verb, "freekeep")) {
    int i = slot_of(a ? a : "", 0);
    CUresult r = i < 0 ? -1 : cu.cuMemFree_v2(slots[i].ptr);
    if (i >= 0 && !verb[4]) slots[i].name[0] = 0;
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "forget")) {
    int i = slot_of(a ? a : "", 0); if (i >= 0) slots[i].name[0] = 0;
    printf("forget\n");
  } else if (!strcmp(verb, "freeptr")) {
    printf("freeptr %d\n", cu.cuMemFree_v2(x));
  } else if (!strcmp(verb, "fill")) {
    int i = slot_of(a, 0); CUresult r = cu.cuMemsetD8_v2(slots[i].ptr, y, slots[i].bytes);
    unsigned char first = 0, last = 0;
    if (!r) r = cu.cuMemcpyDtoH_v2(&first, slots[i].ptr, 1);
    if (!r) r = cu.cuMemcpyDtoH_v2(&last, slots[i].ptr + slots[i].bytes - 1, 1);
    printf("fill %d %d %d\n", r, first, last);
  } else if (!strcmp(verb, "check")) {
    // check NAME BYTE: how many bytes of it are others.
    static unsigned char chunk[1 << 20];
    int i = slot_of(a, 0); CUresult r = 0; size_t others = 0;
    for (size_t at = 0; !r && at < slots[i].bytes; at += sizeof chunk) {
      size_t n = slots[i].bytes - at < sizeof chunk ? slots[i].bytes - at : sizeof chunk;
      r = cu.cuMemcpyDtoH_v2(chunk, slots[i].ptr + at, n);
      for (size_t k = 0; !r && k < n; k++) others += chunk[k] != (unsigned char)y;
    }
    printf("check %d %zu\n", r, others);
  } else if (!strcmp(verb, "spin")) {
    // spin FILE NANOSECONDS: loads the PTX in FILE and runs its spin_ns kernel to its end.
    FILE *f = fopen(a, "r"); if (!f) die(a);
    static char text[1 << 20]; size_t n = fread(text, 1, sizeof text - 1, f); text[n] = 0; fclose(f);
    void *module = NULL, *function = NULL, *arguments[] = {&y};
    CUresult r = cu.cuModuleLoadData(&module, text);
    if (!r) r = cu.cuModuleGetFunction(&function, module, "spin_ns");
    if (!r) r = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    if (!r) r = cu.cuCtxSynchronize();
    printf("spin %d\n", r);
  } else if (!strcmp(verb, "race")) {
    race_threads(x, y, strtoull(c, NULL, 0));
  } else if (!strcmp(verb, "prace")) {
    race_processes(a, y, atoi(c), strtoull(d, NULL, 0));
  } else if (!strcmp(verb, "loop")) {
    int r = alloc_free_loop(x, y, c ? atoi(c) : 1); if (r) printf("loop failed\n");
  } else if (!strcmp(verb, "churn")) {
    churn(x, y, c ? strtoul(c, NULL, 0) : 1);
  } else if (!strcmp(verb, "loopforever")) {
    printf("loopforever\n"); fflush(stdout); if (alloc_free_loop(0, x, y)) printf("loop failed\n");
  } else if (!strcmp(verb, "getproc")) {
    // getproc NAME VERSION FLAGS API: what comes back, named by the exported symbol it points to.
    void *p = NULL; int status = -1; CUresult r;
    if (d && d[0] == '1') r = cu.cuGetProcAddress(a, &p, y, strtoull(c, NULL, 0));
    else r = cu.cuGetProcAddress_v2(a, &p, y, strtoull(c, NULL, 0), &status);
    Dl_info where = {0};
    const char *symbol = p && dladdr(p, &where) && where.dli_sname ? where.dli_sname : p ? "?" : "null";
    printf("getproc %d %d %s %d\n", r, status, symbol, p && where.dli_saddr == p);
  } else if (!strcmp(verb, "dlsym")) {
    // dlsym default|next|handle NAME: presence only; `next` must see the caller, so it is asked from here.
    void *p = !strcmp(a, "default") ? dlsym(RTLD_DEFAULT, b)
              : !strcmp(a, "next")  ? dlsym(RTLD_NEXT, b)
                                    : dlsym(driver_handle, b);
    printf("dlsym %s\n", p ? "found" : "null");
  } else if (!strcmp(verb, "hookcalls")) {
    int (*calls)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "second_hook_calls");
    if (calls) printf("hookcalls %d\n", calls()); else printf("hookcalls none\n");
  } else if (!strcmp(verb, "setenv")) {
    setenv(a, b ? b : "", 1); printf("setenv\n");
  } else if (!strcmp(verb, "getenv")) {
    printf("getenv %s\n", getenv(a) ? getenv(a) : "(unset)");
  } else if (!strcmp(verb, "threads")) {
    printf("threads %d\n", count_entries("/proc/self/task"));
  } else if (!strcmp(verb, "fds")) {
    // Descriptors below 64: what a program that counts its own files would notice.
    int n = 0; for (int i = 0; i < 64; i++) n += fcntl(i, F_GETFD) >= 0;
    printf("fds %d\n", n);
  } else if (!strcmp(verb, "closefds")) {
    for (int i = 3; i < 65536; i++) close(i);
    printf("closefds\n");
  } else if (!strcmp(verb, "guest")) {
    sigset_t mask; pthread_sigmask(SIG_BLOCK, NULL, &mask);
    int blocked = 0, handled = 0; struct sigaction action;
    for (int s = 1; s < 64; s++) {
      blocked += sigismember(&mask, s) == 1;
      if (!sigaction(s, NULL, &action)) handled += action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    }
    mode_t mode = umask(0); umask(mode);
    printf("guest blocked=%d handled=%d umask=%03o\n", blocked, handled, mode);
  } else if (!strcmp(verb, "errno")) {
    errno = 77; CUdeviceptr p = 0; CUresult r = cu.cuMemAlloc_v2(&p, x); int after = errno;
    if (!r) cu.cuMemFree_v2(p);
    printf("errno %d %d\n", r, after);
  } else if (!strcmp(verb, "loaded")) {
    void *h = dlopen(a, RTLD_NOLOAD | RTLD_LAZY); printf("loaded %d\n", h != NULL);
  } else if (!strcmp(verb, "wait")) {
    int status; pid_t p = waitpid(-1, &status, WNOHANG); printf("wait %d %d\n", (int)p, p < 0 ? errno : 0);
  } else if (!strcmp(verb, "fork")) {
    // The rest of the input is the child's until it says `exit`; the parent waits and goes on after it.
    fflush(stdout);
    pid_t child = fork();
    if (child) { int status; waitpid(child, &status, 0); printf("forked %d\n", WEXITSTATUS(status)); }
  } else if (!strcmp(verb, "vfork") || !strcmp(verb, "spawn")) {
    // The same with a new image of this program as the child.
    fflush(stdout);
    pid_t child;
    char *arguments[] = {"client", "dlopen", NULL};
    if (verb[0] == 's') {
      if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ)) die("posix_spawn");
    } else if (!(child = vfork())) {
      execve("/proc/self/exe", arguments, environ); _exit(127);
    }
    int status; waitpid(child, &status, 0); printf("%sed %d\n", verb, WEXITSTATUS(status));
  } else if (!strcmp(verb, "setsid")) {
    setsid(); printf("setsid\n");
  } else if (!strcmp(verb, "pid")) {
    printf("pid %d\n", getpid());
  } else if (!strcmp(verb, "exec")) {
    printf("exec\n"); fflush(stdout); execl("/proc/self/exe", "client", a ? a : "dlopen", NULL); die("exec");
  } else if (!strcmp(verb, "restore")) {
    // restore PID: what the vendor's own utility does with a process that is checkpointed: the two answers.
    CUresult (*restore)(int, void *) = (CUresult (*)(int, void *))dlsym(driver_handle, "cuCheckpointProcessRestore");
    CUresult (*unlock)(int, void *) = (CUresult (*)(int, void *))dlsym(driver_handle, "cuCheckpointProcessUnlock");
    CUresult restored = restore ? restore((int)x, NULL) : 999;
    printf("restore %d %d\n", restored, unlock ? unlock((int)x, NULL) : 999);
  } else if (!strcmp(verb, "endmain")) {
    end_main_thread();
  } else if (!strcmp(verb, "exit")) {
    fflush(stdout); _exit(x);
  } else if (!strcmp(verb, "leave")) {
    exit((int)x);
  } else if (!strcmp(verb, "forkleave")) {
    // A child that does nothing with the driver and exits as a program does.
    fflush(stdout);
    pid_t child = fork();
    if (!child) exit((int)x);
    int status = 0;
    waitpid(child, &status, 0);
    printf("forkleave %d\n", WEXITSTATUS(status));
  } else if (!vmm_command(verb, a, b, c, d, save) && !views_command(verb, a, b, c) && !code_command(verb, a, b, c) &&
             !share_command(verb, a, b, c)) {
    fprintf(stderr, "client: unknown command %s\n", verb); exit(64);
  }
  fflush(stdout);
  return 0;
}

static void obey(void) {
  char line[4096];
  while (fgets(line, sizeof line, stdin)) command(line);
}

// The rest of the input is another thread's. The main thread ends once that one has answered, and `/proc` then shows a
// zombie.
static void *go_on(void *context) {
  cu.cuCtxSetCurrent(context);
  obey();
  exit(0);
}

static void end_main_thread(void) {
  CUcontext context = NULL; cu.cuCtxGetCurrent(&context);
  pthread_t thread; if (pthread_create(&thread, NULL, go_on, context)) die("pthread_create");
  printf("endmain\n"); fflush(stdout);
  pthread_exit(NULL);
}

int main(int argc, char **argv) {
  const char *via = argc > 1 ? argv[1] : "dlopen";
  reach_driver(via);
  // Unbuffered: after `fork` both processes read on where the other stopped, as a shell script would.
  setvbuf(stdin, NULL, _IONBF, 0);
  obey();
  return 0;
}

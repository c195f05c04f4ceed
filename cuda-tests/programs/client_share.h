// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for memory that crosses processes. Included by client.c only.
//
//   createfd BYTES NAME [DEVICE]   cuMemCreate of memory that may be exported as a descriptor
//   vexport NAME                   cuMemExportToShareableHandle; answers the descriptor, which children inherit
//   vimport DESCRIPTOR NAME        cuMemImportFromShareableHandle; `same` when it is a handle that has a name already
//   ipcget NAME / ipcopen HEX NAME / ipcclose NAME    the first form of sharing; HEX is the handle as ipcget prints it
struct ipc_handle { unsigned char bytes[64]; };

#define SHARE(X) \
  X(cuMemExportToShareableHandle, (void *, vhandle, int, unsigned long long)) \
  X(cuMemImportFromShareableHandle, (vhandle *, void *, int)) \
  X(cuIpcGetMemHandle, (struct ipc_handle *, CUdeviceptr)) \
  X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, struct ipc_handle, unsigned)) \
  X(cuIpcCloseMemHandle, (CUdeviceptr))

#define SHARE_FIELD(name, args) CUresult(*name) args;
static struct { SHARE(SHARE_FIELD) } share;

static void reach_share(void) {
  reach_vmm();
  if (share.cuIpcGetMemHandle) return;
#define SHARE_LOAD(name, args) \
  *(void **)&share.name = dlsym(driver_handle ? driver_handle : RTLD_DEFAULT, #name); \
  if (!share.name) die(#name);
  SHARE(SHARE_LOAD)
}

static int share_command(const char *verb, char *a, char *b, char *c) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0;
  if (!strcmp(verb, "createfd")) {
    reach_share();
    struct allocation_properties p = on_device(c ? atoi(c) : 0);
    p.handle_types = 1;
    vhandle h = 0; CUresult r = vm.cuMemCreate(&h, x, &p, 0);
    if (!r) keep(b, h, x);
    printf("createfd %d\n", r);
  } else if (!strcmp(verb, "vexport")) {
    reach_share();
    int descriptor = -1; CUresult r = share.cuMemExportToShareableHandle(&descriptor, kept(a), 1, 0);
    if (!r) fcntl(descriptor, F_SETFD, 0);
    printf("vexport %d %d\n", r, descriptor);
  } else if (!strcmp(verb, "vimport")) {
    reach_share();
    vhandle h = 0; CUresult r = share.cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)x, 1);
    int same = 0;
    for (int i = 0; !r && i < SLOTS; i++) same |= slots[i].name[0] && slots[i].ptr == h;
    if (!r) keep(b, h, 0);
    printf("vimport %d%s\n", r, same ? " same" : "");
  } else if (!strcmp(verb, "ipcget")) {
    reach_share();
    struct ipc_handle h; CUresult r = share.cuIpcGetMemHandle(&h, kept(a));
    printf("ipcget %d ", r);
    for (int i = 0; i < 64; i++) printf("%02x", r ? 0 : h.bytes[i]);
    printf("\n");
  } else if (!strcmp(verb, "ipcopen")) {
    reach_share();
    struct ipc_handle h;
    for (int i = 0; i < 64; i++) { unsigned byte = 0; sscanf(a + 2 * i, "%2x", &byte); h.bytes[i] = byte; }
    CUdeviceptr p = 0; CUresult r = share.cuIpcOpenMemHandle_v2(&p, h, 1);
    if (!r) keep(b, p, 0);
    printf("ipcopen %d\n", r);
  } else if (!strcmp(verb, "ipcclose")) {
    reach_share();
    CUresult r = share.cuIpcCloseMemHandle(kept(a));
    if (!r) forget(a);
    printf("ipcclose %d\n", r);
  } else {
    return 0;
  }
  return 1;
}

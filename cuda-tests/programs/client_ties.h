// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for what ties a process to its device. Included by client.c only.
//
//   poolfd P                     a pool that may be exported
//   poolexport P / poolimport DESCRIPTOR
//   external BYTES               imports memory of another API: a file in memory stands for it
//   tie KIND                     eventget eventopen multicast dmabuf semaphore graphics: calls that are refused here
static int tie_command(const char *verb, char *a) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0;
  CUhandle made = NULL;
  if (!strcmp(verb, "poolfd")) {
    struct pool_props props = {.alloc_type = 1, .handle_types = 1, .location_type = 1};
    CUhandle *pool = &named(pools, a, 1)->handle;
    printf("poolfd %d\n", CALL(cuMemPoolCreate, (CUhandle *, const struct pool_props *), pool, &props));
  } else if (!strcmp(verb, "poolexport")) {
    int descriptor = -1;
    CUresult r = CALL(cuMemPoolExportToShareableHandle, (void *, CUhandle, int, unsigned long long),
      &descriptor, pool_named(a), 1, 0);
    printf("poolexport %d %d\n", r, descriptor);
  } else if (!strcmp(verb, "poolimport")) {
    printf("poolimport %d\n", CALL(cuMemPoolImportFromShareableHandle, (CUhandle *, void *, int, unsigned long long),
      &made, (void *)(uintptr_t)x, 1, 0));
  } else if (!strcmp(verb, "external")) {
    struct {
      int type, pad;
      union { int descriptor; char room[16]; } handle;
      unsigned long long size;
      unsigned flags, reserved[16];
    } description = {.type = 1, .handle.descriptor = memfd_create("external", 0), .size = x};
    int failed = ftruncate(description.handle.descriptor, (off_t)x);
    printf("external %d\n", failed ? -1 : CALL(cuImportExternalMemory, (CUhandle *, void *), &made, &description));
  } else if (!strcmp(verb, "tie")) {
    struct ipc_handle handle = {{0}};
    uint64_t words[32] = {0};
    CUresult r;
    if (!strcmp(a, "eventget")) r = CALL(cuIpcGetEventHandle, (struct ipc_handle *, CUhandle), &handle, NULL);
    else if (!strcmp(a, "eventopen")) r = CALL(cuIpcOpenEventHandle, (CUhandle *, struct ipc_handle), &made, handle);
    else if (!strcmp(a, "multicast")) r = CALL(cuMulticastCreate, (uint64_t *, void *), words, words);
    else if (!strcmp(a, "dmabuf")) r = CALL(cuMemGetHandleForAddressRange,
      (void *, CUdeviceptr, size_t, int, unsigned long long), words, 0, 0, 1, 0);
    else if (!strcmp(a, "semaphore")) r = CALL(cuImportExternalSemaphore, (CUhandle *, void *), &made, words);
    else r = CALL(cuGraphicsGLRegisterBuffer, (CUhandle *, unsigned, unsigned), &made, 1, 0);
    printf("tie %s\n", r ? "refused" : "made");
  } else {
    return 0;
  }
  return 1;
}

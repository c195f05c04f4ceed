// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for what ties a process to its device. Included by client.c only.
//
//   poolfd P                     a pool that may be exported
//   poolexport P / poolimport DESCRIPTOR
//   external BYTES               imports memory of another API: a file in memory stands for it
//   eventmake E S                an event for other processes, recorded in stream S; answers its handle
//   eventopen HEX E / eventrecord E S / eventask E / eventwait E / eventafter E S (S waits for E) / streamask S
//   tie KIND                     eventget eventopen multicast dmabuf semaphore graphics: calls that are refused here
static struct named events[NAMES];

static int event_command(const char *verb, char *a, char *b) {
  if (!strcmp(verb, "eventmake")) {
    struct ipc_handle h = {{0}};
    CUhandle *event = &named(events, a, 1)->handle;
    CUresult r = CALL(cuEventCreate, (CUhandle *, unsigned), event, 6);
    if (!r) r = CALL(cuEventRecord, (CUhandle, CUhandle), *event, stream_named(b));
    if (!r) r = CALL(cuIpcGetEventHandle, (struct ipc_handle *, CUhandle), &h, *event);
    printf("eventmake %d ", r);
    for (int i = 0; i < 64; i++) printf("%02x", h.bytes[i]);
    printf("\n");
  } else if (!strcmp(verb, "eventopen")) {
    struct ipc_handle h;
    for (int i = 0; i < 64; i++) { unsigned byte = 0; sscanf(a + 2 * i, "%2x", &byte); h.bytes[i] = byte; }
    CUhandle *event = &named(events, b, 1)->handle;
    printf("eventopen %d\n", CALL(cuIpcOpenEventHandle, (CUhandle *, struct ipc_handle), event, h));
  } else if (!strcmp(verb, "streamask")) {
    printf("streamask %d\n", CALL(cuStreamQuery, (CUhandle), stream_named(a)));
  } else if (!strncmp(verb, "event", 5) && a && named(events, a, 0)) {
    CUhandle event = named(events, a, 0)->handle;
    CUresult r;
    if (!strcmp(verb, "eventrecord")) r = CALL(cuEventRecord, (CUhandle, CUhandle), event, stream_named(b));
    else if (!strcmp(verb, "eventask")) r = CALL(cuEventQuery, (CUhandle), event);
    else if (!strcmp(verb, "eventwait")) r = CALL(cuEventSynchronize, (CUhandle), event);
    else if (!strcmp(verb, "eventafter"))
      r = CALL(cuStreamWaitEvent, (CUhandle, CUhandle, unsigned), stream_named(b), event, 0);
    else return 0;
    printf("%s %d\n", verb, r);
  } else {
    return 0;
  }
  return 1;
}

static int tie_command(const char *verb, char *a, char *b) {
  if (event_command(verb, a, b)) return 1;
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

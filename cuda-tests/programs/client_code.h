// SPDX-License-Identifier: Apache-2.0
// Commands of the steerable client for code, heaps and contexts beside the usual ones. Included by client.c only.
//
//   module FILE PAD NAME / moduleunload NAME     cuModuleLoadData of the PTX in FILE with PAD bytes of blanks after it
//   library FILE PAD NAME / libraryunload NAME   the same by cuLibraryLoadData
//   librarymodule NAME                           cuLibraryGetModule: its code is needed now
//   limit WHICH BYTES / getlimit WHICH           cuCtxSetLimit, cuCtxGetLimit
//   refusedctx DEVICE                            a context that is denied: does its handle stay what it was?
//   attach / ctxdetach INDEX                     cuCtxAttach to the current context, cuCtxDetach from one of ours
//   current                                      is a context current, and which of ours
#define CODE(X) \
  X(cuModuleUnload, (void *)) \
  X(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned)) \
  X(cuLibraryUnload, (void *)) \
  X(cuLibraryGetModule, (void **, void *)) \
  X(cuCtxSetLimit, (int, size_t)) \
  X(cuCtxGetLimit, (size_t *, int)) \
  X(cuCtxAttach, (CUcontext *, unsigned)) \
  X(cuCtxDetach, (CUcontext))

#define CODE_FIELD(name, args) CUresult(*name) args;
static struct { CODE(CODE_FIELD) } code;

static void reach_code(void) {
  if (code.cuModuleUnload) return;
#define CODE_LOAD(name, args) \
  *(void **)&code.name = dlsym(driver_handle ? driver_handle : RTLD_DEFAULT, #name); \
  if (!code.name) die(#name);
  CODE(CODE_LOAD)
}

// The text of a file with so many blanks after it, to make an image of any size.
static char *padded(const char *path, size_t pad) {
  FILE *f = fopen(path, "r");
  if (!f) die(path);
  fseek(f, 0, SEEK_END);
  size_t n = ftell(f);
  rewind(f);
  char *text = malloc(n + pad + 1);
  if (!text || fread(text, 1, n, f) != n) die(path);
  fclose(f);
  memset(text + n, ' ', pad);
  text[n + pad] = 0;
  return text;
}

static int code_command(const char *verb, char *a, char *b, char *c) {
  unsigned long long x = a ? strtoull(a, NULL, 0) : 0, y = b ? strtoull(b, NULL, 0) : 0;
  if (!strcmp(verb, "module") || !strcmp(verb, "library")) {
    reach_code();
    char *text = padded(a, y);
    void *before = (void *)0x5a5a, *made = before;
    CUresult r = verb[0] == 'm' ? cu.cuModuleLoadData(&made, text)
                                : code.cuLibraryLoadData(&made, text, NULL, NULL, 0, NULL, NULL, 0);
    free(text);
    if (!r) keep(c, (uint64_t)made, 0);
    printf("%s %d%s\n", verb, r, r && made != before ? " written" : "");
  } else if (!strcmp(verb, "moduleunload") || !strcmp(verb, "libraryunload")) {
    reach_code();
    CUresult r = verb[0] == 'm' ? code.cuModuleUnload((void *)kept(a)) : code.cuLibraryUnload((void *)kept(a));
    if (!r) forget(a);
    printf("%s %d\n", verb, r);
  } else if (!strcmp(verb, "librarymodule")) {
    reach_code();
    void *module = NULL;
    printf("librarymodule %d\n", code.cuLibraryGetModule(&module, (void *)kept(a)));
  } else if (!strcmp(verb, "limit")) {
    reach_code();
    printf("limit %d\n", code.cuCtxSetLimit(x, y));
  } else if (!strcmp(verb, "getlimit")) {
    reach_code();
    size_t value = 0; CUresult r = code.cuCtxGetLimit(&value, x);
    printf("getlimit %d %zu\n", r, value);
  } else if (!strcmp(verb, "attach")) {
    reach_code();
    CUcontext attached = NULL;
    printf("attach %d\n", code.cuCtxAttach(&attached, 0));
  } else if (!strcmp(verb, "ctxdetach")) {
    reach_code();
    printf("ctxdetach %d\n", code.cuCtxDetach(contexts[x % 16]));
  } else if (!strcmp(verb, "refusedctx")) {
    CUcontext made = (CUcontext)0x5a5a; CUresult r = cu.cuCtxCreate_v2(&made, 0, (CUdevice)x);
    printf("refusedctx %d %s\n", r, made == (CUcontext)0x5a5a ? "untouched" : "written");
  } else if (!strcmp(verb, "current")) {
    CUcontext current = NULL; CUresult r = cu.cuCtxGetCurrent(&current);
    int which = -1;
    for (int i = 0; i < 16; i++) if (current && contexts[i] == current) which = i;
    printf("current %d %s %d\n", r, current ? "some" : "none", which);
  } else {
    return 0;
  }
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// Calls functions that are not built, each twice with eight zeros, and prints what the calls answered.
//
// usage: refusals FILE VERSION NAME... [-- FILE VERSION NAME...]...
// FILE is found by the loader; VERSION is the symbols', or `none`. Of NAME:text the answer is a text. Each file is
// opened in a process of its own. A line per name: `FILE NAME ANSWER ANSWER`.
#define _GNU_SOURCE // dlvsym
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long (*refused_t)(long, long, long, long, long, long, long, long);

static void print(long answer, int is_text) {
  if (is_text) printf(" %s", answer ? (const char *)answer : "null");
  else printf(" %d", (int)answer);
}

static int walk(const char *file, const char *version, char **names, int count) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) { printf("%s: %s\n", file, dlerror()); return 1; }
  for (int i = 0; i < count; i++) {
    char *kind = strchr(names[i], ':');
    if (kind) *kind = 0;
    void *found = strcmp(version, "none") ? dlvsym(library, names[i], version) : dlsym(library, names[i]);
    if (!found) { printf("%s: %s\n", file, dlerror()); return 1; }
    refused_t function;
    memcpy(&function, &found, sizeof function);
    printf("%s %s", file, names[i]);
    for (int call = 0; call < 2; call++) print(function(0, 0, 0, 0, 0, 0, 0, 0), kind != NULL);
    putchar('\n');
  }
  return 0;
}

int main(int count, char **words) {
  // What is printed before a crash is seen.
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int first = 1; first + 1 < count;) {
    int end = first + 2, status = 0;
    while (end < count && strcmp(words[end], "--")) end++;
    pid_t child = fork();
    if (child == 0) _exit(walk(words[first], words[first + 1], words + first + 2, end - first - 2));
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
      printf("%s ended with %d\n", words[first], status);
      return 1;
    }
    first = end + 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// What the plugin reads as text, without Slurm.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

int find_group(const char *file, unsigned job, struct job_group *group) {
  char line[PATH_SIZE], part[64];
  snprintf(part, sizeof part, "/job_%u", job);
  FILE *lines = fopen(file, "re");
  if (!lines) return -1;
  int found = -1;
  while (found && fgets(line, sizeof line, lines)) {
    line[strcspn(line, "\n")] = 0;
    // NUMBER:CONTROLLERS:PATH
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) continue;
    *path++ = 0, controllers++;
    if (*controllers && strcmp(controllers, "freezer")) continue;
    char *at = strstr(path, part);
    size_t length = strlen(part);
    if (!at || (at[length] && at[length] != '/')) continue;
    snprintf(group->path, sizeof group->path, "%s", path);
    group->job_length = (size_t)(at - path) + length;
    group->is_unified = !*controllers;
    found = 0;
  }
  fclose(lines);
  return found;
}

// Adds "0,2-3" to the GPUs, with each number by itself. 0, or -1 where it is no such list or there is no room.
static int add_gpus(char *gpus, const char *list, const char *end) {
  while (list < end) {
    char *after;
    unsigned long first = strtoul(list, &after, 10), last = first;
    if (after == list) return -1;
    if (*after == '-') {
      list = after + 1;
      last = strtoul(list, &after, 10);
    }
    if (after == list || (*after != ',' && after != end) || last > first + 64) return -1;
    for (; first <= last; first++) {
      size_t length = strlen(gpus);
      int added = snprintf(gpus + length, TEXT - length, length ? ",%lu" : "%lu", first);
      if (added < 0 || length + (size_t)added >= TEXT) return -1;
    }
    list = after + 1;
  }
  return 0;
}

int read_gres(const char *text, char gpus[TEXT], unsigned *shards) {
  int has_gpu = 0;
  *gpus = 0, *shards = 0;
  while (*text) {
    size_t name = strcspn(text, ",(");
    const char *indices = text + name, *end = indices;
    if (*indices == '(' && !(end = strchr(indices, ')'))) return -1;
    int is_shard = !strncmp(text, "shard:", 6), is_gpu = !strncmp(text, "gpu:", 4);
    if (is_shard || is_gpu) {
      if (strncmp(indices, "(IDX:", 5) || add_gpus(gpus, indices + 5, end)) return -1;
      const char *count = indices;
      while (count[-1] != ':') count--;
      if (is_shard) *shards += (unsigned)strtoul(count, NULL, 10);
      has_gpu |= is_gpu;
    }
    text = end + strcspn(end, ",");
    text += *text == ',';
  }
  return *gpus && !(has_gpu && *shards) ? 0 : -1;
}

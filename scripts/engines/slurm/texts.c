// SPDX-License-Identifier: Apache-2.0
//
// What engines/slurm reads as text: the kernel's control groups under v1 and v2, and the controller's words of a job's
// GPUs. The argument is a file to write to.
#include <stdio.h>
#include <string.h>

#include "command.h"

static int failed;

static void group_is(const char *name, const char *text, const char *path, int is_unified) {
  struct job_group group;
  FILE *file = fopen(name, "w");
  fputs(text, file);
  fclose(file);
  int found = !find_group(name, 7, &group);
  if (found) group.path[group.job_length] = 0;
  if (found == !path || (path && (strcmp(group.path, path) || group.is_unified != is_unified))) {
    printf("of %s: %s\n", text, found ? group.path : "none");
    failed = 1;
  }
}

static void gres_is(const char *text, const char *gpus, unsigned shards) {
  char seen[TEXT];
  unsigned count;
  int is_read = !read_gres(text, seen, &count);
  if (is_read == !gpus || (gpus && (strcmp(seen, gpus) || count != shards))) {
    printf("of %s: %s and %u\n", text, is_read ? seen : "none", count);
    failed = 1;
  }
}

int main(int count, char *arguments[]) {
  if (count != 2) return 2;
  const char *file = arguments[1];
  group_is(file, "4:memory:/slurm/uid_5/job_7/step_0\n3:freezer:/slurm_n/uid_5/job_7/step_0\n2:name=x:/job_7\n0::/\n",
           "/slurm_n/uid_5/job_7", 0);
  group_is(file, "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
           "/system.slice/slurmstepd.scope/job_7", 1);
  group_is(file, "0::/system.slice/n1_slurmstepd.scope/job_7\n", "/system.slice/n1_slurmstepd.scope/job_7", 1);
  group_is(file, "0::/system.slice/slurmstepd.scope/job_71/step_0\n", NULL, 0);
  group_is(file, "3:freezer:/slurm_n/uid_5/job_6/step_7\n0::/user.slice\nno line\n", NULL, 0);
  group_is(file, "4:memory:/slurm/uid_5/job_7\n0::/\n", NULL, 0);
  gres_is("shard:5(IDX:0)", "0", 5);
  gres_is("shard:a100:5(IDX:1)", "1", 5);
  gres_is("gpu:1(IDX:3)", "3", 0);
  gres_is("gpu:a100:2(IDX:0-1),nic:1(IDX:0),gpu:v100:1(IDX:4),licence:2", "0,1,4", 0);
  gres_is("bandwidth(CNT:9),shard:2(IDX:0,2-3)", "0,2,3", 2);
  gres_is("gpu:1(IDX:0),shard:5(IDX:1)", NULL, 0);
  gres_is("shard:5(0/10,5/10)", NULL, 0);
  gres_is("gpu(CNT:2)", NULL, 0);
  const char *const none[] = {"", "nic:1(IDX:0)", "shard:5", "shard:5(IDX:0", "shard:5(IDX:)", "shard:5(IDX:x)",
                              "shard:5(IDX:0-)", "shard:5(IDX:0-99)", "shard:5(IDX:0;1)"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) gres_is(none[i], NULL, 0);
  return failed;
}

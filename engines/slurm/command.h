// SPDX-License-Identifier: Apache-2.0
//
// What the plugin's parts share: running `partage` from slurmstepd, the job's control group, and what is read as text.
#ifndef PARTAGE_SLURM_COMMAND_H
#define PARTAGE_SLURM_COMMAND_H

#include <sys/types.h>

// slurmstepd's own functions may have these names.
#pragma GCC visibility push(hidden)

enum { DEADLINE_MS = 10000, WORDS = 24, TEXT = 512, PATH_SIZE = 1024 };

// The absolute path of the command, from plugstack.conf.
extern char partage_path[TEXT];

long now_ms(void);

// Runs `partage` with these words, as this user where it is not root's to say, for at most DEADLINE_MS. 0, or -1 and
// in `said` the sentence why.
int run(const char *const words[], uid_t uid, gid_t gid, char said[TEXT]);

// Begins the same without waiting for its end, its words thrown away. The child, or -1.
pid_t begin(const char *const words[]);

// A control group that a job of Slurm is in: the path as the kernel names it, and how much of it is the job's own.
struct job_group {
  char path[PATH_SIZE];
  size_t job_length;
  int is_unified;
};

// Finds it in a text like /proc/PID/cgroup: of the freezer under cgroup v1, of the one hierarchy under v2.
int find_group(const char *file, unsigned job, struct job_group *group);

// This process enters it.
int enter(const struct job_group *group);

// Reads the controller's words of what a job has on a node, "shard:5(IDX:0)" or "gpu:a100:2(IDX:0-1),nic:1(IDX:0)".
// 0, or -1 without a GPU, with whole ones beside shards, or where the words are others.
int read_gres(const char *text, char gpus[TEXT], unsigned *shards);

// Suspends the job when Slurm does, from a process in the step of these tasks, and resumes it. The process, or -1.
pid_t begin_watcher(const pid_t *tasks, int count, unsigned job, const struct job_group *group);

#pragma GCC visibility pop
#endif

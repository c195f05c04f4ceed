// SPDX-License-Identifier: Apache-2.0
//
// A SPANK plugin: a job of Slurm is a job of Partage on each of its nodes. docs/guides/engines/slurm.md is its page.
//
// In slurmstepd, as root, before a task runs its program: `partage register` makes the Slurm job's control group a job
// with the GPUs and shards that Slurm gave it. With PrologFlags=Contain it begins with the allocation and lives until
// that ends; else it begins with the first step that has a GPU and ends with the group's last process.
//
// command.c runs `partage`, watcher.c is there while Slurm suspends the job.
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "command.h"

SPANK_PLUGIN(partage, 1)

enum { MOST_TASKS = 4096, ALLOCATION_WAIT_S = 2 };

// From plugstack.conf: partage=PATH shards=N [library=PATH]
char partage_path[TEXT] = "/usr/bin/partage";
static char library_path[TEXT];
static unsigned shards_of_a_gpu;

static char gpu_mem[64];

// Whether something went wrong: in a page that slurmstepd and the tasks that it forks share. A callback of slurmstepd's
// own that fails lets `srun` end with 0; one of the task's does not.
static char *has_failed;

static int take_gpu_mem(int val, const char *optarg, int remote) {
  (void)val, (void)remote;
  // What it means is Partage's to judge; here only what cannot be any size.
  const char *text = optarg ? optarg : "";
  if (!*text || strlen(text) >= sizeof gpu_mem || strspn(text, "0123456789.KMGTiB%") != strlen(text)) {
    slurm_error("partage: --gpu-mem=%s: use a size or a part of the GPU, e.g. --gpu-mem=8GiB", text);
    return -1;
  }
  snprintf(gpu_mem, sizeof gpu_mem, "%s", text);
  return 0;
}

static struct spank_option gpu_mem_option = {
    .name = "gpu-mem",
    .arginfo = "SIZE",
    .usage = "GPU memory limit of the job, e.g. 8GiB: at most what its shards give (Partage)",
    .has_arg = 1,
    .cb = take_gpu_mem,
};

static int take_argument(const char *argument) {
  static const char *const paths[] = {"partage=", "library="};
  char *const places[] = {partage_path, library_path};
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(paths[i]);
    if (strncmp(argument, paths[i], length)) continue;
    if (argument[length] != '/' || strlen(argument + length) >= TEXT) return -1;
    snprintf(places[i], TEXT, "%s", argument + length);
    return 0;
  }
  char end;
  return sscanf(argument, "shards=%u%c", &shards_of_a_gpu, &end) == 1 && shards_of_a_gpu ? 0 : -1;
}

int slurm_spank_init(spank_t spank, int ac, char *av[]) {
  for (int i = 0; i < ac; i++)
    if (take_argument(av[i])) {
      slurm_error("partage: plugstack.conf: %s is none of partage=/PATH, library=/PATH, shards=N", av[i]);
      return -1;
    }
  if (spank_remote(spank) == 1) {
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return -1;
    has_failed = page;
  }
  return spank_option_register(spank, &gpu_mem_option) == ESPANK_SUCCESS ? 0 : -1;
}

static int fail(const char *why) {
  if (has_failed) *has_failed = 1;
  // The step's user reads it, too.
  slurm_error("partage: %s", why);
  return -1;
}

// A whole GPU has no limit; shards are parts of one.
static int add_part(const char **words, int count, unsigned shards, char part[3][32]) {
  if (!shards) return count;
  unsigned long ppm = 1000000UL * shards / shards_of_a_gpu;
  snprintf(part[0], 32, "%lu.%04lu%%", ppm / 10000, ppm % 10000);
  unsigned long weight = 1000UL * shards / shards_of_a_gpu;
  snprintf(part[1], 32, "%lu", weight ? weight : 1);
  words[count++] = "--mem", words[count++] = part[0];
  words[count++] = "--compute", words[count++] = part[0];
  words[count++] = "--weight", words[count++] = part[1];
  return count;
}

static int register_job(pid_t pid, unsigned job, const char *gpus, unsigned shards) {
  char file[64], number[16], engine[64], given[128], part[3][32], said[TEXT];
  struct job_group group;
  snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
  if (find_group(file, job, &group))
    return fail("the job has no control group: ProctrackType must be proctrack/cgroup");
  if (shards && !shards_of_a_gpu) return fail("plugstack.conf has no shards=N: how many shards are a GPU?");
  if (shards > shards_of_a_gpu && shards) return fail("more shards than plugstack.conf says that a GPU has");
  group.path[group.job_length] = 0;
  snprintf(number, sizeof number, "%d", (int)pid);
  snprintf(engine, sizeof engine, "slurm:%u", job);
  if (shards)
    snprintf(given, sizeof given, "shard:%u of %u", shards, shards_of_a_gpu);
  else
    snprintf(given, sizeof given, "gpu:%.100s", gpus);
  // A little less than the deadline here, so that it is `partage` that says what is missing.
  const char *words[WORDS] = {"partage",  "register",       "--pid", number,  "--cgroup", group.path,  "--engine",
                              engine,     "--engine-words", given,   "--gpu", gpus,       "--timeout", "8s"};
  words[add_part(words, 14, shards, part)] = NULL;
  return run(words, 0, 0, said) ? fail(said) : 0;
}

// What the user chose for the job, as the user: up to what root registered, and no more.
static int lower_job(unsigned job, uid_t uid, gid_t gid) {
  char target[64], setting[96], said[TEXT];
  snprintf(target, sizeof target, "slurm:%u", job);
  snprintf(setting, sizeof setting, "mem=%s", gpu_mem);
  const char *const words[] = {"partage", "set", target, setting, NULL};
  return run(words, uid, gid, said) ? fail(said) : 0;
}

// What the extern step's slurmstepd knows of its allocation.
static struct allocation {
  uint32_t job, node;
  uid_t uid;
  gid_t gid;
} allocation;

// A process of the job's user in the job's group, while that is registered: the extern step's own are root's.
static pid_t stand_in(uid_t uid, gid_t gid) {
  int ready[2];
  char byte;
  if (pipe2(ready, O_CLOEXEC)) return -1;
  pid_t parent = getpid(), child = fork();
  if (!child) {
    if (setgroups(0, NULL) || setgid(gid) || setuid(uid)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || write(ready[1], "", 1) != 1) _exit(1);
    for (int fd = 0; fd < 1024; fd++) close(fd);
    for (;;) pause();
  }
  close(ready[1]);
  ssize_t count = child > 0 ? read(ready[0], &byte, 1) : 0;
  close(ready[0]);
  if (child > 0 && count != 1) waitpid(child, NULL, 0);
  return count == 1 ? child : -1;
}

static int load_job(job_info_msg_t **answer, uint32_t job) {
#ifdef slurm_load_job_sluid
  // Since 26.05.
  slurm_step_id_t step = SLURM_STEP_ID_INITIALIZER;
  step.job_id = job;
  return slurm_load_job(answer, step, SHOW_DETAIL);
#else
  return slurm_load_job(answer, job, SHOW_DETAIL);
#endif
}

// In a thread of the extern step's slurmstepd: it may wait for the controller and for `partage`, and nobody for it.
static void *hold_room(void *nothing) {
  job_info_msg_t *answer;
  char gpus[TEXT];
  unsigned shards;
  if (load_job(&answer, allocation.job)) {
    slurm_info("partage: the controller does not say what job %u has: its first step will", allocation.job);
    return nothing;
  }
  int has_gpu = 0;
  for (uint32_t i = 0; i < answer->record_count; i++) {
    slurm_job_info_t *job = &answer->job_array[i];
    if (job->job_id != allocation.job || allocation.node >= job->gres_detail_cnt) continue;
    const char *text = job->gres_detail_str[allocation.node];
    has_gpu = text && !read_gres(text, gpus, &shards);
  }
  slurm_free_job_info_msg(answer);
  pid_t pid = has_gpu ? stand_in(allocation.uid, allocation.gid) : -1;
  if (pid < 0) return nothing;
  register_job(pid, allocation.job, gpus, shards);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return nothing;
}

static void begin_allocation(void) {
  pthread_t thread;
  struct timespec until;
  if (pthread_create(&thread, NULL, hold_room, NULL)) return;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ALLOCATION_WAIT_S;
  if (pthread_timedjoin_np(thread, NULL, &until)) pthread_detach(thread);
}

// The tasks of this step that were begun, and how many of them have ended.
static pid_t tasks[MOST_TASKS];
static int task_count, ended_count;
static pid_t watcher = -1;

// With the last task of the step, so that the watcher knows them all.
static void watch_step(spank_t spank, pid_t pid, unsigned job) {
  char file[64];
  struct job_group group;
  uint32_t count;
  if (task_count < MOST_TASKS) tasks[task_count++] = pid;
  if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &count) || (uint32_t)task_count != count) return;
  snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
  if (!find_group(file, job, &group)) watcher = begin_watcher(tasks, task_count, job, &group);
}

int slurm_spank_task_post_fork(spank_t spank, int ac, char *av[]) {
  (void)ac, (void)av;
  char gpus[TEXT], count[32];
  uint32_t job, step, node;
  uid_t uid;
  gid_t gid;
  pid_t pid;
  if (spank_remote(spank) != 1 || spank_get_item(spank, S_JOB_STEPID, &step)) return 0;
  if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_UID, &uid) ||
      spank_get_item(spank, S_JOB_GID, &gid) || spank_get_item(spank, S_JOB_NODEID, &node)) {
    fail("slurmstepd does not say whose step it is");
    return 0;
  }
  if (step == SLURM_EXTERN_CONT) {
    allocation = (struct allocation){job, node, uid, gid};
    begin_allocation();
    return 0;
  }
  // Slurm writes the one of a step, and the other of a batch script and of the shell of `salloc`, and takes them away
  // where there is no GPU; the other one each time is the user's.
  int has_all = step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP;
  const char *variable = has_all ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS";
  if (spank_getenv(spank, variable, gpus, sizeof gpus) || !*gpus || *has_failed) return 0;
  if (spank_get_item(spank, S_TASK_PID, &pid)) {
    fail("slurmstepd does not say which task it is");
    return 0;
  }
  unsigned shards = 0;
  if (spank_getenv(spank, "SLURM_SHARDS_ON_NODE", count, sizeof count) == ESPANK_SUCCESS)
    shards = (unsigned)strtoul(count, NULL, 10);
  // Once for all tasks of the step.
  if (!task_count && (register_job(pid, job, gpus, shards) || (*gpu_mem && lower_job(job, uid, gid)))) return 0;
  watch_step(spank, pid, job);
  return 0;
}

int slurm_spank_task_exit(spank_t spank, int ac, char *av[]) {
  (void)spank, (void)ac, (void)av;
  if (++ended_count < task_count || watcher < 0) return 0;
  // One that ended before was slurmstepd's to wait for, and its number may be another process's.
  if (!waitpid(watcher, NULL, WNOHANG)) {
    kill(watcher, SIGKILL);
    waitpid(watcher, NULL, 0);
  }
  watcher = -1;
  return 0;
}

// In the task, as its user: with `required` in plugstack.conf it does not run its program where something went wrong.
int slurm_spank_task_init(spank_t spank, int ac, char *av[]) {
  (void)ac, (void)av;
  if (spank_remote(spank) != 1) return 0;
  if (has_failed && *has_failed) return -1;
  if (!*library_path) return 0;
  char old[TEXT * 4] = "", both[TEXT * 6];
  spank_getenv(spank, "LD_PRELOAD", old, sizeof old);
  snprintf(both, sizeof both, *old ? "%s:%s" : "%s%s", library_path, old);
  return spank_setenv(spank, "LD_PRELOAD", both, 1) == ESPANK_SUCCESS ? 0 : -1;
}

// SPDX-License-Identifier: Apache-2.0
//
// A SPANK plugin: a job of Slurm is a job of Partage on each of its nodes. docs/guides/engines/slurm.md is its page.
//
// In slurmstepd, as root, before a task runs its program: `partage register` makes the Slurm job's control group a job
// with the GPUs and shards that Slurm gave it. The first step with a GPU, or the batch script, begins it; later steps
// and tasks find it there. It lives by its group: with PrologFlags=Contain until the Slurm job ends.
//
// `partage` runs by an absolute path, with an empty environment and at most ten seconds, outside of the job's group,
// from where nothing is registered or changed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(partage, 1)

enum { DEADLINE_MS = 10000, WORDS = 24, TEXT = 512, PATH_MAX_HERE = 1024 };

// From plugstack.conf: partage=PATH shards=N [library=PATH]
static char partage_path[TEXT] = "/usr/bin/partage";
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

// The job's control group as the kernel names it, up to the part `job_ID`: of the freezer under cgroup v1, of the one
// hierarchy under v2.
static int find_group(pid_t pid, unsigned job, char *group) {
  char name[64], line[PATH_MAX_HERE], part[64];
  snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
  snprintf(part, sizeof part, "/job_%u", job);
  FILE *file = fopen(name, "re");
  if (!file) return -1;
  int found = -1;
  while (found && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *path = strchr(line, ':');
    path = path ? strchr(path + 1, ':') : NULL;
    char *at = path ? strstr(path + 1, part) : NULL;
    size_t end = strlen(part);
    if (!at || (at[end] && at[end] != '/')) continue;
    at[end] = 0;
    snprintf(group, PATH_MAX_HERE, "%s", path + 1);
    found = 0;
  }
  fclose(file);
  return found;
}

static int write_to(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int failed = write(fd, text, strlen(text)) < 0;
  close(fd);
  return failed ? -1 : 0;
}

// In the child: only what a fork of a program with threads may call.
static void become(const char *const words[], int out, uid_t uid, gid_t gid) {
  static char *const nothing[] = {NULL};
  int null = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
  for (int fd = 3; fd < 1024; fd++) close(fd);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  // Out of the job's group; where neither is the hierarchy, `partage` says that it is inside.
  if (write_to("/sys/fs/cgroup/freezer/cgroup.procs", "0")) write_to("/sys/fs/cgroup/cgroup.procs", "0");
  if (uid && (setgroups(0, NULL) || setgid(gid) || setuid(uid))) _exit(126);
  if (chdir("/")) _exit(126);
  execve(partage_path, (char *const *)words, nothing);
  dprintf(2, "%s: %s\n", partage_path, strerror(errno));
  _exit(127);
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Runs `partage`, as this user where it is not root's to say.
static int run(const char *const words[], uid_t uid, gid_t gid) {
  char said[TEXT] = "";
  size_t length = 0;
  int out[2], status = 0;
  if (pipe2(out, O_CLOEXEC)) return fail("no pipe");
  pid_t child = fork();
  if (child < 0) return fail("no process for partage");
  if (!child) become(words, out[1], uid, gid);
  close(out[1]);
  long until = now_ms() + DEADLINE_MS, left;
  int is_open = 1, is_over = 0;
  // A descendant may keep the pipe open after it ended: then its end is looked for every 20 ms.
  while (!is_over && (left = until - now_ms()) > 0) {
    struct pollfd one = {out[0], POLLIN, 0};
    char piece[256];
    if (poll(&one, is_open, left < 20 ? (int)left : 20) > 0) {
      ssize_t count = read(out[0], piece, sizeof piece);
      is_open = count > 0;
      for (ssize_t i = 0; i < count && length + 1 < sizeof said; i++) said[length++] = piece[i];
    }
    is_over = waitpid(child, &status, WNOHANG) == child;
  }
  if (!is_over) {
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(out[0]);
    return fail("partage did not answer within 10 s");
  }
  // What it said last may still be in the pipe.
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  ssize_t more = is_open ? read(out[0], said + length, sizeof said - length - 1) : 0;
  if (more > 0) length += (size_t)more;
  close(out[0]);
  said[length] = 0;
  if (WIFEXITED(status) && !WEXITSTATUS(status)) return 0;
  for (char *at = said; *at; at++)
    if (*at == '\n') *at = at[1] ? ' ' : 0;
  char *sentence = strncmp(said, "partage: ", 9) ? said : said + 9;
  return fail(*sentence ? sentence : "partage failed and did not say why");
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
  char number[16], group[PATH_MAX_HERE], engine[64], given[128], part[3][32];
  if (find_group(pid, job, group)) return fail("the job has no control group: ProctrackType must be proctrack/cgroup");
  if (shards && !shards_of_a_gpu) return fail("plugstack.conf has no shards=N: how many shards are a GPU?");
  if (shards > shards_of_a_gpu && shards) return fail("more shards than plugstack.conf says that a GPU has");
  snprintf(number, sizeof number, "%d", (int)pid);
  snprintf(engine, sizeof engine, "slurm:%u", job);
  if (shards)
    snprintf(given, sizeof given, "shard:%u of %u", shards, shards_of_a_gpu);
  else
    snprintf(given, sizeof given, "gpu:%.100s", gpus);
  // A little less than the deadline here, so that it is `partage` that says what is missing.
  const char *words[WORDS] = {"partage",  "register",       "--pid", number,  "--cgroup", group,       "--engine",
                              engine,     "--engine-words", given,   "--gpu", gpus,       "--timeout", "8s"};
  words[add_part(words, 14, shards, part)] = NULL;
  return run(words, 0, 0);
}

// What the user chose for the job, as the user: up to what root registered, and no more.
static int lower_job(unsigned job, uid_t uid, gid_t gid) {
  char target[64], setting[96];
  snprintf(target, sizeof target, "slurm:%u", job);
  snprintf(setting, sizeof setting, "mem=%s", gpu_mem);
  const char *const words[] = {"partage", "set", target, setting, NULL};
  return run(words, uid, gid);
}

int slurm_spank_task_post_fork(spank_t spank, int ac, char *av[]) {
  (void)ac, (void)av;
  char gpus[TEXT], count[32];
  uint32_t job, step;
  uid_t uid;
  gid_t gid;
  pid_t pid;
  if (spank_remote(spank) != 1) return 0;
  // Slurm writes the one of a step and the other of a batch script, and takes them away where there is no GPU; the
  // other one each time is the user's. The extern step has neither: it keeps the job's group alive, and begins no job.
  if (spank_get_item(spank, S_JOB_STEPID, &step)) return 0;
  const char *variable = step == SLURM_BATCH_SCRIPT ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS";
  if (step == SLURM_EXTERN_CONT || spank_getenv(spank, variable, gpus, sizeof gpus) || !*gpus) return 0;
  if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_TASK_PID, &pid) ||
      spank_get_item(spank, S_JOB_UID, &uid) || spank_get_item(spank, S_JOB_GID, &gid)) {
    fail("slurmstepd does not say whose task it is");
    return 0;
  }
  unsigned shards = 0;
  if (spank_getenv(spank, "SLURM_SHARDS_ON_NODE", count, sizeof count) == ESPANK_SUCCESS)
    shards = (unsigned)strtoul(count, NULL, 10);
  if (!register_job(pid, job, gpus, shards) && *gpu_mem) lower_job(job, uid, gid);
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

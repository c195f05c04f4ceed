// SPDX-License-Identifier: Apache-2.0
//
// Slurm suspends a job (`scontrol suspend`, PreemptMode=SUSPEND) by SIGTSTP to the tasks, a wait (suspend_grace_time),
// and then by freezing the step. No plugin is called; so a process of the plugin's is in the step, a child of
// slurmstepd as the tasks are, and gets these signals as they do. It answers SIGTSTP with `partage suspend`, so that
// the job's GPU memory is free when the step freezes, and SIGCONT with `partage resume`. It is root's and blocks every
// other signal; it ends with the tasks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

// A task that SIGTSTP stopped: a child of slurmstepd, so not another process by the number of one that is gone.
static int is_stopped(pid_t pid, pid_t parent) {
  char name[32], stat[512];
  snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, stat, sizeof stat - 1);
  close(fd);
  stat[length > 0 ? length : 0] = 0;
  // PID (NAME) STATE PARENT
  const char *end = strrchr(stat, ')');
  return end && strlen(end) > 4 && end[2] == 'T' && strtol(end + 4, NULL, 10) == parent;
}

// A stopped process cannot hand its memory over. These go on until the step is frozen. Was any stopped?
static int let_go_on(const pid_t *tasks, int count, pid_t parent) {
  int any = 0;
  for (int i = 0; i < count; i++)
    if (is_stopped(tasks[i], parent)) any = !kill(tasks[i], SIGCONT);
  return any;
}

// Suspends the job, and once more where a task that was stopped kept it from that.
static void suspend(const char *target, const pid_t *tasks, int count, pid_t parent) {
  const char *const words[] = {"partage", "suspend", target, NULL};
  long until = now_ms() + DEADLINE_MS;
  int were_stopped, status;
  do {
    were_stopped = let_go_on(tasks, count, parent);
    pid_t child = begin(words);
    if (child < 0) return;
    while (waitpid(child, &status, WNOHANG) != child) {
      // What goes on later, or not, is the broker's.
      if (now_ms() > until) return;
      were_stopped |= let_go_on(tasks, count, parent);
      poll(NULL, 0, 10);
    }
  } while (were_stopped && !(WIFEXITED(status) && !WEXITSTATUS(status)));
}

static void watch(const char *target, const pid_t *tasks, int count, pid_t parent) {
  const char *const resume[] = {"partage", "resume", target, NULL};
  int is_away = 0, got;
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGTSTP);
  sigaddset(&both, SIGCONT);
  for (;;) {
    if (sigwait(&both, &got)) continue;
    if (got == SIGTSTP)
      suspend(target, tasks, count, parent);
    else if (is_away)
      // It waits for room as long as there is none, and ends with the job.
      begin(resume);
    is_away = got == SIGTSTP;
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
  }
}

pid_t begin_watcher(const pid_t *tasks, int count, unsigned job, const struct job_group *group) {
  char target[64];
  snprintf(target, sizeof target, "slurm:%u", job);
  pid_t parent = getpid(), child = fork();
  if (child) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  setpgid(0, 0);
  // The tasks' pipes end with the tasks.
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  for (int fd = 3; fd < 1024; fd++) close(fd);
  if (enter(group)) _exit(1);
  watch(target, tasks, count, parent);
  _exit(0);
}

// SPDX-License-Identifier: Apache-2.0
//
// Runs `partage` by an absolute path, with an empty environment and a deadline, outside of the job's control group:
// from there nothing is registered or changed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int write_to(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int failed = write(fd, text, strlen(text)) < 0;
  close(fd);
  return failed ? -1 : 0;
}

int enter(const struct job_group *group) {
  char path[PATH_SIZE + 64];
  snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/cgroup.procs", group->is_unified ? "" : "/freezer", group->path);
  return write_to(path, "0");
}

// Becomes this user, whose other processes must not get hold of this one: it is outside of the job's group. Who traces
// a process needs its capabilities; so it keeps one, which it has no use for.
static int be_user(uid_t uid, gid_t gid) {
  enum { KEPT = CAP_NET_BIND_SERVICE };
  struct __user_cap_header_struct own = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2] = {{1U << KEPT, 1U << KEPT, 1U << KEPT}, {0, 0, 0}};
  return setgroups(0, NULL) || setgid(gid) || prctl(PR_SET_KEEPCAPS, 1) || setuid(uid) ||
         syscall(SYS_capset, &own, sets) || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KEPT, 0, 0);
}

// In the child: only what a fork of a program with threads may call.
static void become(const char *const words[], int out, uid_t uid, gid_t gid) {
  static char *const nothing[] = {NULL};
  static const struct job_group freezer = {.is_unified = 0}, unified = {.is_unified = 1};
  int null = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
  for (int fd = 3; fd < 1024; fd++) close(fd);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  // Out of the job's group; where neither is the hierarchy, `partage` says that it is inside.
  if (enter(&freezer)) enter(&unified);
  if (uid && be_user(uid, gid)) {
    dprintf(2, "this process does not become user %u: %s\n", uid, strerror(errno));
    _exit(126);
  }
  if (chdir("/")) _exit(126);
  execve(partage_path, (char *const *)words, nothing);
  dprintf(2, "%s: %s\n", partage_path, strerror(errno));
  _exit(127);
}

pid_t begin(const char *const words[]) {
  pid_t child = fork();
  if (!child) become(words, open("/dev/null", O_WRONLY), 0, 0);
  return child;
}

// Reads what the child says until it ended; a descendant may keep the pipe open longer, so its end is looked for every
// 20 ms. Is it over?
static int listen_to(pid_t child, int out, int *status, char said[TEXT]) {
  size_t length = 0;
  long until = now_ms() + DEADLINE_MS, left;
  int is_open = 1, is_over = 0;
  while (!is_over && (left = until - now_ms()) > 0) {
    struct pollfd one = {out, POLLIN, 0};
    char piece[256];
    if (poll(&one, is_open, left < 20 ? (int)left : 20) > 0) {
      ssize_t count = read(out, piece, sizeof piece);
      is_open = count > 0;
      for (ssize_t i = 0; i < count && length + 1 < TEXT; i++) said[length++] = piece[i];
    }
    is_over = waitpid(child, status, WNOHANG) == child;
  }
  // What it said last may still be in the pipe.
  fcntl(out, F_SETFL, O_NONBLOCK);
  ssize_t more = is_open ? read(out, said + length, TEXT - length - 1) : 0;
  said[length + (more > 0 ? (size_t)more : 0)] = 0;
  return is_over;
}

static int refuse(char said[TEXT], const char *why) {
  snprintf(said, TEXT, "%s", why);
  return -1;
}

int run(const char *const words[], uid_t uid, gid_t gid, char said[TEXT]) {
  int out[2], status = 0;
  if (pipe2(out, O_CLOEXEC)) return refuse(said, "no pipe");
  pid_t child = fork();
  if (!child) become(words, out[1], uid, gid);
  close(out[1]);
  int is_over = child > 0 && listen_to(child, out[0], &status, said);
  close(out[0]);
  if (child < 0) return refuse(said, "no process for partage");
  if (!is_over) {
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return refuse(said, "partage did not answer within 10 s");
  }
  if (WIFEXITED(status) && !WEXITSTATUS(status)) return 0;
  for (char *at = said; *at; at++)
    if (*at == '\n') *at = at[1] ? ' ' : 0;
  if (!strncmp(said, "partage: ", 9)) memmove(said, said + 9, strlen(said + 9) + 1);
  return *said ? -1 : refuse(said, "partage failed and did not say why");
}

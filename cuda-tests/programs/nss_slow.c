// SPDX-License-Identifier: Apache-2.0
// A user database for glibc (libnss_slow.so.2) that does not answer while the file $PARTAGE_TEST_NSS/stuck is there:
// until then whoever asks waits. Afterwards it knows one user (uid 60001, "carol") and one group (gid 60100, "lab"),
// which has that user.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_while_stuck(void)
{
    const char *folder = getenv("PARTAGE_TEST_NSS");
    char path[4096];
    if (!folder || snprintf(path, sizeof path, "%s/stuck", folder) >= (int)sizeof path)
        return;
    // Whoever began to wait waits for ever, as for a server that is gone.
    while (access(path, F_OK) == 0)
        pause();
}

static enum nss_status carol(struct passwd *user)
{
    *user = (struct passwd){
        .pw_name = "carol", .pw_passwd = "x", .pw_uid = 60001, .pw_gid = 65534,
        .pw_gecos = "", .pw_dir = "/", .pw_shell = "/bin/sh",
    };
    return NSS_STATUS_SUCCESS;
}

static enum nss_status lab(struct group *group)
{
    static char *members[] = {"carol", NULL};
    *group = (struct group){.gr_name = "lab", .gr_passwd = "x", .gr_gid = 60100, .gr_mem = members};
    return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_slow_getpwuid_r(uid_t uid, struct passwd *user, char *buffer, size_t size, int *error)
{
    (void)buffer, (void)size, (void)error;
    wait_while_stuck();
    return uid == 60001 ? carol(user) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_slow_getpwnam_r(const char *name, struct passwd *user, char *buffer, size_t size, int *error)
{
    (void)buffer, (void)size, (void)error;
    wait_while_stuck();
    return strcmp(name, "carol") == 0 ? carol(user) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_slow_getgrgid_r(gid_t gid, struct group *group, char *buffer, size_t size, int *error)
{
    (void)buffer, (void)size, (void)error;
    wait_while_stuck();
    return gid == 60100 ? lab(group) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_slow_getgrnam_r(const char *name, struct group *group, char *buffer, size_t size, int *error)
{
    (void)buffer, (void)size, (void)error;
    wait_while_stuck();
    return strcmp(name, "lab") == 0 ? lab(group) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_slow_initgroups_dyn(const char *name, gid_t main_group, long *count, long *size, gid_t **gids,
                                         long limit, int *error)
{
    (void)main_group;
    wait_while_stuck();
    if (strcmp(name, "carol") != 0)
        return NSS_STATUS_NOTFOUND;
    if (*count == *size) {
        if (limit > 0 && *size >= limit)
            return NSS_STATUS_SUCCESS;
        gid_t *more = realloc(*gids, sizeof **gids * (size_t)(*size + 8));
        if (!more) {
            *error = ENOMEM;
            return NSS_STATUS_TRYAGAIN;
        }
        *gids = more;
        *size += 8;
    }
    (*gids)[(*count)++] = 60100;
    return NSS_STATUS_SUCCESS;
}

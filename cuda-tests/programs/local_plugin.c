// SPDX-License-Identifier: Apache-2.0
// A plugin opened RTLD_LOCAL that looks a driver function up in RTLD_DEFAULT: its own scope, not the program's.
#define _GNU_SOURCE
#include <dlfcn.h>

void *plugin_look_up(const char *name) { return dlsym(RTLD_DEFAULT, name); }

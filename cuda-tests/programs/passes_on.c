// SPDX-License-Identifier: Apache-2.0
// Becomes the program that its arguments name, or without any says "ready" and waits for the end of its input. Built
// static and against musl.
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words) {
  if (count > 1) {
    execv(words[1], words + 1);
    return 127;
  }
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}

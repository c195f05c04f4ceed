// SPDX-License-Identifier: Apache-2.0
// A program that no GPU runtime touches; built static, against musl, and setuid.
#include <stdio.h>

int main(void) {
  puts("hello");
  return 3;
}

// SPDX-License-Identifier: Apache-2.0
// The floor that any preload pays: an empty library.
int partage_empty_library;

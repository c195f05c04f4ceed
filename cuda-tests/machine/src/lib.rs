// SPDX-License-Identifier: Apache-2.0
//! A simulated machine: devices, memory and timeline shared by its processes.

// SPDX-License-Identifier: Apache-2.0
//! Codes of the driver that mean something of their own here (`CUresult`).

/// INVALID_VALUE: a map that the driver does not take.
pub(super) const INVALID_VALUE: i32 = 1;
/// NOT_INITIALIZED: the process has no CUDA.
pub(super) const NOT_INITIALIZED: i32 = 3;
/// OPERATING_SYSTEM, also for a system call of ours that failed.
pub(super) const OPERATING_SYSTEM: i32 = 304;
/// NOT_SUPPORTED.
pub(super) const NOT_SUPPORTED: i32 = 801;
/// UNKNOWN, for a driver that cannot be asked at all.
pub(super) const UNKNOWN: i32 = 999;

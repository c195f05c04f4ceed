// SPDX-License-Identifier: Apache-2.0
//! Admission, quota, queue and placement as pure functions.

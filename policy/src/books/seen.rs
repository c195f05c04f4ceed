// SPDX-License-Identifier: Apache-2.0
//! What devices show of processes: memory, time and nothing at all.

pub(crate) mod audit;
pub(crate) mod due;
pub(crate) mod evidence;
pub(crate) mod idle;
pub(crate) mod overhead;
pub(crate) mod time_audit;
pub(crate) mod unmanaged;

// SPDX-License-Identifier: Apache-2.0
//! What this process is charged for: the words of the reservation, single allocations, pools, and what no call names.
//! Nothing here knows of the gate.

pub mod account;
pub mod allocations;
pub mod charge;
pub mod contexts;
pub mod overhead;
pub mod pools;
pub mod recovery;
pub mod reservation;
pub mod sharing;
pub mod tables;
pub mod tracked;
pub mod words;

// SPDX-License-Identifier: Apache-2.0
//! State that outlives a request: clients, and the files from which the next broker goes on.

pub mod clients;
pub mod devices;
pub mod directory;
pub mod drained;
pub mod ended;
pub mod job_store;
pub mod jobs;
pub mod ledger;
pub mod pages;
pub mod usage;

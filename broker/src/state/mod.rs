// SPDX-License-Identifier: Apache-2.0
//! What outlives a request: the clients and what the broker keeps in files, so that the next one can go on.

pub mod clients;
pub mod devices;
pub mod directory;
pub mod ended;
pub mod job_store;
pub mod jobs;
pub mod ledger;
pub mod pages;

// SPDX-License-Identifier: Apache-2.0
//! Containers: their first process becomes a job's (`register`, `hook`), and engines
//! are told of it (`cdi`).

pub mod bundle;
pub mod cdi;
pub mod hook;
pub mod register;

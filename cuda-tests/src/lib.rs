// SPDX-License-Identifier: Apache-2.0
//! End-to-end tests: real processes under `partage run`, on the simulated driver everywhere and, with
//! `PARTAGE_TEST_DRIVER=real`, on the machine's own.
//!
//! [`rig`] makes a machine with its own broker and starts clients on it; [`truth`] is what its devices really did;
//! [`cases`] holds the bodies, a file per chapter, each a function from a rig to a verdict; [`harness`] runs each in a
//! process of its own. `cargo test -p partage-tests --test cases` runs them all; the same test binary is carried to
//! machines with a GPU.

pub mod artefacts;
pub mod cases;
pub mod client;
pub mod harness;
pub mod pages;
pub mod rig;
pub mod time_client;
pub mod truth;
mod variables;

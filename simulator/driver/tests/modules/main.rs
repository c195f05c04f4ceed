// SPDX-License-Identifier: Apache-2.0
//! Code on the built simulated driver: modules, libraries, the linker, functions and their attributes. Each test runs
//! in a child process on a machine of its own.

#[path = "../execution/machine.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod machine;

mod functions;
mod libraries;
mod linker;
mod loading;

// SPDX-License-Identifier: Apache-2.0
//! The state driver with devices that misbehave as real ones do: memory that outlives its process, hangs, late drivers.
//! Time is the test's; processes are real (`sleep`).

mod bench;
mod clients;
mod devices;
mod queue;
mod time;

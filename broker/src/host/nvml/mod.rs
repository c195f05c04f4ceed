// SPDX-License-Identifier: Apache-2.0
//! The machine's devices through killable helper processes (`serve.rs`, `helper/`), without ever waiting for one.
//!
//! No thread of the broker calls NVML or waits for it. Only a helper process calls it. The event loop sends the helper
//! a question, goes on, and takes the answer when it has come; after a deadline it kills the helper.
//!
//! ```text
//!             Open                 Devices               look() / period
//!   start ───────────► opening ───────────────► resting ◄──────────────► sampling, one device after the other
//!     ▲                   │ deadline, error,                                │ deadline or error on device X
//!     │ back-off          ▼ death                                           ▼
//!   (none) ◄──────── helper killed ◄──────────────────────────── X is lost; a helper of its own asks for X
//! ```
//!
//! A poll longer than [`slot::SLOW_NS`] keeps its helper, and another helper polls the other devices: no device waits
//! for another's answer. The main helper never polls a lost device again; a separate helper tries the device, with
//! growing pauses, until it answers.

mod adapter;
mod messages;
mod nvlink;
mod serve;
mod slot;
mod telemetry;
#[cfg(test)]
mod tests;
mod unified;

pub use adapter::{Nvml, helper_command};
pub use serve::serve;

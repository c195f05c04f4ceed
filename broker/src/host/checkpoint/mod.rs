// SPDX-License-Identifier: Apache-2.0
//! The driver's checkpoint calls, through killable helper processes that run as the target's user.
//!
//! A call can hang for as long as its target is stopped, and a driver may end the process that calls. So the broker
//! calls none: a helper (`serve.rs`) does, one for each user and job that is asked about at the moment, one call at a
//! time, each with a deadline: a call that hangs keeps no other job waiting. The target completes what has begun even
//! when its helper is killed; the next question is for its state.
//!
//! A helper has its user's rights, and reads what that user's program wrote, so that user may make it say anything: an
//! answer is about that user's job only, and what others rely on (that memory is free) has to be seen by NVML. The user
//! can neither signal nor trace it (`helper/process.rs`). One that is lost all the same costs others a deadline: its
//! job stands on its way, a drain names it, and another one leaves for whoever waits.
//!
//! ```text
//!   ask ──► waits its turn ──► helper started, if none runs ──► Open ──► call ──► answer
//!                                        │ does not start             │ deadline: killed, `Late`
//!                                        ▼ or dies                    ▼ dies: `Failed`
//!                                     `Failed`                 the next one in turn has a new helper
//! ```

mod adapter;
mod library;
mod messages;
mod probe;
mod serve;
#[cfg(test)]
mod tests;

pub use adapter::{CheckpointHelpers, Number, Outcome, helper_command};
pub(in crate::host) use library::Driver as CudaDriver;
pub use messages::{Answer, Ask, Call, State};
pub use serve::serve;

// SPDX-License-Identifier: Apache-2.0
//! The words of what decisions come to: the sentences and documents that callers get.

mod holders;
mod notices;
mod refusals;
mod replies;
mod waits;

pub use notices::stands;

// SPDX-License-Identifier: Apache-2.0
//! What users are shown, as the admin protocol's documents: read-only, over the policy's questions.

mod ps;
mod sentences;
mod slow;
mod status;
mod why;
mod words;

// SPDX-License-Identifier: Apache-2.0
//! Room: what devices have, who has it and who waits for it, and which request it would do for.

pub(crate) mod adopting;
pub(crate) mod advice;
pub(crate) mod ceiling;
pub(crate) mod changed;
pub(crate) mod claims;
pub(crate) mod denied;
pub(crate) mod drained;
pub(crate) mod dying;
pub(crate) mod expected;
pub(crate) mod foreseen;
pub(crate) mod headroom;
pub(crate) mod least;
pub(crate) mod moving;
pub(crate) mod placement;
pub(crate) mod promises;
pub(crate) mod residence;
pub(crate) mod returning;
pub(crate) mod survey;
pub(crate) mod totals;
pub(crate) mod turn;
pub(crate) mod undecided;
pub(crate) mod waiting;

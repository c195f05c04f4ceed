// SPDX-License-Identifier: Apache-2.0
//! The functions behind the stand-ins for the CUDA runtime: `cudaMalloc` is exported as `partage_cudaMalloc`, and where
//! CUDA 12's and 13's functions of one name differ, 12's is `partage_NAME_v12`. `partage_stand_ins` makes the files that
//! programs load, whose names lead here; a name that no row has leads to [`refuse`].
//!
//! A runtime is bookkeeping over the driver: which device a thread uses ([`device`]), which kernel a function of the
//! program stands for ([`code`]), the last error ([`error`]). Everything else is a row of a table ([`rows`]) that hands
//! the call to the driver, found by the dynamic linker as a program finds it ([`driver`]), so that a preloaded library
//! sees what it sees of any program. Only the driver's public functions are called: the question by which the vendor's
//! runtime knows its own driver is never asked here, and stays unanswered by the simulated one.

pub mod chapters;
mod code;
mod device;
mod driver;
mod error;
mod properties;
mod refuse;
pub mod rows;
mod surroundings;

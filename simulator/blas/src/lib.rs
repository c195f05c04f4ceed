// SPDX-License-Identifier: Apache-2.0
//! The stand-in for cublas and cublasLt of CUDA 12 and 13 on the simulated driver, with cudnn's version.
//!
//! Every function is exported as `partage_` and its name; where CUDA 12 has another answer, `partage_`, the name and
//! `_v12` gives that. The machine's `libcublas.so.12` and so on lead there. Real matrices of f16, bf16, f32 and f64 are
//! computed by kernels of our own, whose text [`kernels`] makes; what else a function may be asked for answers
//! NOT_SUPPORTED and is named once on stderr. Complex matrices and everything that is not exported are refused by the
//! machine's libraries.
//!
//! [`driver`] is the way to the driver; above it [`handle`], [`product`] and [`vectors`]; [`gemm_calls`] and [`lt`] are
//! the calls of the two libraries, each behind its [`turn`]. No call allocates device memory or waits, but for results
//! that the host reads.

mod driver;
mod gemm_calls;
mod handle;
mod kernels;
mod lt;
mod product;
mod status;
mod turn;
mod vectors;
mod versions;

// SPDX-License-Identifier: Apache-2.0
//! The simulated driver: libcuda.so.1 without a GPU.

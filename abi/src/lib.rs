// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver API and NVML as Partage sees them: types and two tables.

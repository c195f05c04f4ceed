// SPDX-License-Identifier: Apache-2.0
//! The simulated libnvidia-ml.so.1.

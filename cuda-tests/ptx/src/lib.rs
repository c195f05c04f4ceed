// SPDX-License-Identifier: Apache-2.0
//! PTX parser, translator and interpreter.

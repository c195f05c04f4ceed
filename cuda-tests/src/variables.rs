// SPDX-License-Identifier: Apache-2.0
//! The variables by which the runner and the cases about it speak to each other.

/// The case that this process is to run, and nothing else.
pub const CASE: &str = "PARTAGE_TEST_CASE";
/// Longest that a case may take, in seconds.
pub const LIMIT: &str = "PARTAGE_TEST_LIMIT_S";
/// Lists the parts that the cases about the runner need, instead of the cases.
pub const PARTS: &str = "PARTAGE_TEST_PARTS";
/// Prints which cases run on a real driver, on a simulated one too.
pub const TABLE: &str = "PARTAGE_TEST_TABLE";

// SPDX-License-Identifier: Apache-2.0
//! Why something is not allowed, or makes no sense. The table is in `views/said/refusals.rs`.

not_allowed_table!(facts);

// SPDX-License-Identifier: Apache-2.0
//! A metric with its values, each with its labels.

use crate::row::Declared;

/// A label and its value.
pub(crate) type Label = (&'static str, String);

/// A metric with its series.
pub(crate) struct Family {
    pub(crate) declared: Declared,
    pub(crate) series: Vec<(Vec<Label>, f64)>,
}

// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format, version 0.0.4.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>: in a label's value a backslash, a quotation mark and a
//! line feed are escaped; in help a backslash and a line feed. No time is written: a scrape is of now.

use std::fmt::Write as _;

use crate::series::{Family, Label};

/// The families, each with its help and type before its series. One without series is not there.
pub(crate) fn write(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        let one = &family.declared;
        // Writing into a text does not fail.
        let _ = writeln!(out, "# HELP {} {}", one.name, escaped(one.help, false));
        let _ = writeln!(out, "# TYPE {} {}", one.name, one.kind.word());
        for (labels, value) in &family.series {
            out.push_str(one.name);
            write_labels(&mut out, labels);
            let _ = writeln!(out, " {value}");
        }
    }
    out
}

fn write_labels(out: &mut String, labels: &[Label]) {
    // An empty label is no label.
    let mut open = '{';
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(out, "{open}{name}=\"{}\"", escaped(value, true));
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
}

fn escaped(text: &str, is_label: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_label => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out
}

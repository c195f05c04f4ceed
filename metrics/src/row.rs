// SPDX-License-Identifier: Apache-2.0
//! What a row of the tables is: a metric's declaration, and how its values are read.

use partage_protocol::units::SECOND_NS;

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up and down.
    Gauge,
    /// Up alone, but for a new beginning at 0.
    Counter,
}

impl Kind {
    /// As Prometheus writes it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// What a value counts. The name of a metric says it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A part, 0 to 1.
    Ratio,
    /// Things: jobs, processes, denials.
    Count,
    /// 1 for yes, 0 for no.
    Flag,
    /// Degrees.
    Celsius,
    /// Watts.
    Watts,
    /// Always 1: its labels are what it says.
    Info,
}

impl Unit {
    /// For tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Ratio => "0-1",
            Self::Count => "count",
            Self::Flag => "0 or 1",
            Self::Celsius => "degrees Celsius",
            Self::Watts => "watts",
            Self::Info => "1",
        }
    }

    /// What the name of a gauge of this unit ends with; a counter's has `_total` after it.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Bytes => "_bytes",
            Self::Seconds => "_seconds",
            Self::Ratio => "_ratio",
            Self::Count | Self::Flag => "",
            Self::Celsius => "_celsius",
            Self::Watts => "_watts",
            Self::Info => "_info",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// A sentence about it.
    pub help: &'static str,
    /// The label that tells its values of one thing apart, where there are several.
    pub by: Option<&'static str>,
}

/// A metric and what reads its values.
pub struct Row<F: 'static> {
    /// The metric.
    pub declared: Declared,
    /// Puts its values down; none where nothing says them.
    pub read: F,
}

/// The values of one metric of one thing.
#[derive(Debug, Default)]
pub struct Values(Vec<(String, f64)>);

impl Values {
    /// The value.
    pub(crate) fn set(&mut self, value: impl Number) {
        self.of("", value);
    }

    /// The value, if there is one.
    pub(crate) fn maybe(&mut self, value: Option<impl Number>) {
        if let Some(value) = value {
            self.set(value);
        }
    }

    /// The value for this value of the label.
    pub(crate) fn of(&mut self, label: impl Into<String>, value: impl Number) {
        self.0.push((label.into(), value.number()));
    }

    /// Value of the label, value.
    pub(crate) fn into_pairs(self) -> Vec<(String, f64)> {
        self.0
    }
}

/// What is a value.
pub(crate) trait Number {
    /// As a value.
    fn number(self) -> f64;
}

impl Number for u64 {
    // Exact up to 8 PiB, and beyond rounded to a part in 10^16.
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for u32 {
    fn number(self) -> f64 {
        f64::from(self)
    }
}

impl Number for usize {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND_NS as f64
}

/// Tables of rows.
///
/// A row: kind, unit, name, the label that tells its values apart where there are several, help, what reads it.
macro_rules! metrics {
    ($($(#[$doc:meta])* $table:ident: $read:ty { $(
        $kind:ident $unit:ident $name:literal $(by $by:literal)? $help:literal => $how:expr;
    )* })*) => {
        $($(#[$doc])*
        pub(crate) const $table: &[$crate::row::Row<$read>] = &[$(
            $crate::row::Row {
                declared: $crate::row::Declared {
                    name: $name,
                    kind: $crate::row::Kind::$kind,
                    unit: $crate::row::Unit::$unit,
                    help: $help,
                    by: $crate::row::metrics!(@by $($by)?),
                },
                read: $how,
            },
        )*];)*
    };
    (@by) => { None };
    (@by $by:literal) => { Some($by) };
}
pub(crate) use metrics;

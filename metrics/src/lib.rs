// SPDX-License-Identifier: Apache-2.0
//! Metrics: the broker's documents in the words of a monitoring system (Prometheus' text format 0.0.4).
//!
//! ```text
//!   status, ps, config (documents of partage-protocol)
//!        │ Seen
//!        ▼
//!   one row for each metric (`declared`): name, kind, unit, help, where its value is
//!        │ values, with labels (`labels`), within the budget of series (`collect`)
//!        ▼
//!   text (`text`)      ◄── broker's listener, `partage metrics`
//!   table of the page  ◄── docs/metrics.md
//! ```
//! Pure: whoever has the documents has the metrics, and sees in them no more than in the documents.

pub mod collect;
pub mod declared;
pub mod labels;
mod row;
pub mod seen;
mod series;
pub mod table;
mod text;

pub use collect::{Exposition, MOST_SERIES, exposition};
pub use declared::declared;
pub use labels::JobLabel;
pub use row::{Declared, Kind, Unit};
pub use seen::Seen;

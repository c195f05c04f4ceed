// SPDX-License-Identifier: Apache-2.0
//! The JSON requests of the command line and the broker's replies.
//!
//! A connection carries one request and one or more [`Reply`] documents; the last one is not `Waiting` and not `Event`.
//! Both sockets accept the same requests: on `client.sock` a caller reaches its own jobs and looks; on `admin.sock`
//! other people's. Fields are only ever added. Bytes are integers, times end in `_ns`, ratios are 0-1.

mod config;
mod event;
mod event_kind;
mod failure;
mod reply;
mod request;
mod status_views;
mod views;

pub use config::{AuditView, ConfigView, ReadingView, TotalUnit, TotalView};
pub use event::{EventDevice, EventNumbers, EventView};
pub use event_kind::{EVENT_KINDS, EventKind, event_kind};
pub use failure::{ErrorCode, ErrorView};
pub use reply::{Admitted, DrainView, ForeseenDevice, MoveView, MovedView, Reply, StayingView, Waiting};
pub use request::{EventsRequest, MetricsRequest, RegisterRequest, Request};
pub use status_views::{
    BrokerView, DeviceView, DrainedView, PlaceView, QueueView, QueuedView, SickView, StatusView, TelemetryView,
    UnifiedView, XidView,
};
pub use views::{
    CauseView, CheckpointView, ClientView, ContainerView, DenialView, EngineView, Holder, JobDeviceView, JobView,
    ResidenceView, SCHEMA, STATES, TermsView, TimeView, UnfreedView, UnmanagedView, WhyView,
};

pub use crate::denied::Denied as DeniedView;
pub use crate::request::{AtMost, RunRequest, TermsChange};

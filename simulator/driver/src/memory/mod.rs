// SPDX-License-Identifier: Apache-2.0
//! The memory that the driver gives to this process.
//!
//! Terms. *Window*: a range of addresses reserved at `cuInit`, one per device for its allocations and one for
//! addresses that the program manages itself. *Visible address*: what the program holds; never readable by it.
//! *Alias*: where the driver reaches the same byte, always the visible address plus one constant. Managed and host
//! memory is ordinary memory: its alias is itself. Arrays have no visible address: programs name them by handle.
//!
//! Layers, from the lowest up; each names only those before it:
//! - addresses: [`space`], [`ranges`] and, of both, the [`windows`];
//! - what gives itself back to the windows when the last who knows it goes: what others hold too ([`shared`],
//!   [`foreign`], [`physical`]), addresses of graphs ([`span`]), pools ([`pool`], [`pool_sharing`]);
//! - one [`allocation`], and the table of them ([`allocations`]);
//! - the calls, each kind of memory in its file; [`away`] takes all of it off the devices and puts it back.

mod allocation;
mod allocations;
mod arrays;
mod away;
mod chunks;
mod exports;
mod foreign;
mod formats;
mod graph_pool;
mod linear;
mod lock;
mod mapping;
mod over;
mod physical;
mod place;
mod planned;
mod pool;
mod pool_exports;
mod pool_sharing;
mod ranges;
mod shapes;
mod shared;
mod space;
mod span;
mod stream_ordered;
mod view;
mod windows;

pub use allocation::{Allocation, AllocationKind};
pub use allocations::{install, memory};
pub use away::Away;
pub use foreign::Export;
pub use graph_pool::{Binding, GraphPool};
pub use linear::Freeable;
pub use mapping::Accessor;
pub use over::ask_for_completion;
pub use physical::Physical;
pub use pool::{Asker, Freed, Pool, create_pool, settle_pools, trim_pools};
pub use pool_sharing::{PoolSharing, Record};
pub use shapes::Shape;
pub use space::LARGE_PAGE;
pub use span::{Occupied, Span, Wish};
pub use windows::windows;

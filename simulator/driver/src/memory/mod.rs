// SPDX-License-Identifier: Apache-2.0
//! The memory that the driver gives to this process.
//!
//! Terms. *Window*: a range of addresses reserved at `cuInit`, one per device for its allocations and one for
//! addresses that the program manages itself. *Visible address*: what the program holds; never readable by it.
//! *Alias*: where the driver reaches the same byte, always the visible address plus one constant. Managed and host
//! memory is ordinary memory: its alias is itself. Arrays have no visible address: programs name them by handle.

mod allocations;
mod arrays;
mod chunks;
mod foreign;
mod formats;
mod graph_pool;
mod linear;
mod mapping;
mod over;
mod place;
mod planned;
mod pool;
mod pool_sharing;
mod ranges;
mod shapes;
mod shared;
mod space;
mod view;

pub use allocations::{Allocation, AllocationKind, Memory, install, memory};
pub use foreign::Export;
pub use graph_pool::{Binding, GraphPool};
pub use linear::Freeable;
pub use mapping::{Accessor, Physical};
pub use over::ask_for_completion;
pub use planned::{Occupied, Span, Wish};
pub use pool::{Asker, Freed, Pool};
pub use pool_sharing::{PoolSharing, Record};
pub use shapes::Shape;
pub use space::LARGE_PAGE;
#[allow(unused_imports)] // for whoever keeps one
pub use view::View;

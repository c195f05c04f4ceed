// SPDX-License-Identifier: Apache-2.0
//! Execution on the built simulated driver: order of streams, events and their times, capture, graphs, copies, and
//! processes that share a device. Each test runs in a child process on a machine of its own.

mod array_copies;
mod bounds;
mod capture;
mod checkpoint;
mod copies;
mod graph_memory;
mod graphs;
mod machine;
mod memory_nodes;
mod sharing;
mod streams;
mod time;
mod user_objects;

// SPDX-License-Identifier: Apache-2.0
//! What clients, broker and command line say to each other: messages, pages, units.

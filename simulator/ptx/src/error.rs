// SPDX-License-Identifier: Apache-2.0
//! Why a module was refused at load, and why a kernel was stopped while running.

use std::fmt;

use crate::place::Place;

/// What kind of refusal a [`ParseError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text is not PTX.
    Syntax,
    /// A name is not declared.
    Unresolved,
    /// PTX that this interpreter does not execute.
    Unsupported,
}

/// What reading and translating a module gives.
pub(crate) type Result<T> = std::result::Result<T, ParseError>;

/// A module could not be loaded; says where and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1; 0 when the error belongs to no line.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// What kind of refusal this is.
    pub refusal: Refusal,
    /// What is wrong, lower case, without full stop.
    pub reason: String,
}

impl ParseError {
    pub(crate) fn syntax(place: Place, reason: impl Into<String>) -> Self {
        Self {
            line: place.line,
            column: place.column,
            refusal: Refusal::Syntax,
            reason: reason.into(),
        }
    }

    pub(crate) fn unresolved(place: Place, name: &str) -> Self {
        let reason = format!("{name} is not declared");
        Self {
            line: place.line,
            column: place.column,
            refusal: Refusal::Unresolved,
            reason,
        }
    }

    pub(crate) fn unsupported(place: Place, what: &str) -> Self {
        let reason = format!("{what} is not supported");
        Self {
            line: place.line,
            column: place.column,
            refusal: Refusal::Unsupported,
            reason,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// A running kernel did something that ends its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Line of the PTX text that faulted; 0 when no instruction is to blame.
    pub line: u32,
}

/// What a kernel did wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Access to memory that is not allocated (CUDA error 700).
    IllegalAddress(u64),
    /// Address not a multiple of the access size (CUDA error 716).
    MisalignedAddress(u64),
    /// An address of a space that the instruction cannot use (CUDA error 717).
    IllegalSpace(u64),
    /// An instruction with operands that cannot be executed (CUDA error 715).
    IllegalInstruction,
    /// A call through a pointer that is no function (CUDA error 718).
    IllegalCall(u64),
    /// Calls nested deeper than the stack allows (CUDA error 714).
    StackOverflow,
    /// `trap` (CUDA error 719).
    Trap,
    /// A device-side `assert` failed; holds its message (CUDA error 710).
    Assert(String),
    /// The launch does not fit the kernel: what is wrong with it (CUDA error 1 or 701).
    BadLaunch(&'static str),
    /// The launcher asked for an end.
    Stopped,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kernel {}", self.kernel)?;
        if self.line != 0 {
            write!(formatter, ", line {}", self.line)?;
        }
        match &self.kind {
            FaultKind::IllegalAddress(address) => write!(formatter, ": illegal address 0x{address:x}"),
            FaultKind::MisalignedAddress(address) => write!(formatter, ": misaligned address 0x{address:x}"),
            FaultKind::IllegalSpace(address) => write!(formatter, ": address 0x{address:x} is of another space"),
            FaultKind::IllegalInstruction => write!(formatter, ": illegal instruction"),
            FaultKind::IllegalCall(target) => write!(formatter, ": 0x{target:x} is not a function"),
            FaultKind::StackOverflow => write!(formatter, ": stack overflow"),
            FaultKind::Trap => write!(formatter, ": trap"),
            FaultKind::Assert(message) => write!(formatter, ": assertion failed: {message}"),
            FaultKind::BadLaunch(why) => write!(formatter, ": {why}"),
            FaultKind::Stopped => write!(formatter, ": stopped"),
        }
    }
}

impl std::error::Error for Fault {}

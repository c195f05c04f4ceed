// SPDX-License-Identifier: Apache-2.0
//! What went wrong in a passage, in words.

use std::fmt;

use super::stage::Stage;
use super::step::{Answer, Step};
use crate::caller::Process;

/// The driver's codes that mean something of their own here (`CUresult`).
pub(super) mod code {
    /// INVALID_VALUE: the pairs, or an importer without pairs.
    pub const INVALID_VALUE: i32 = 1;
    /// OUT_OF_MEMORY.
    pub const OUT_OF_MEMORY: i32 = 2;
    /// NOT_INITIALIZED: no CUDA there.
    pub const NOT_INITIALIZED: i32 = 3;
    /// OPERATING_SYSTEM: no such process, none of ours, or one that a restore lost.
    pub const OPERATING_SYSTEM: i32 = 304;
    /// ILLEGAL_STATE: another state than that of the call.
    pub const ILLEGAL_STATE: i32 = 401;
    /// NOT_READY: its work did not end in time.
    pub const NOT_READY: i32 = 600;
    /// NOT_SUPPORTED.
    pub const NOT_SUPPORTED: i32 = 801;
}

/// A step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// In this stage; none of a question for a state.
    pub stage: Option<Stage>,
    /// The process that it was about, where it was one.
    pub process: Option<Process>,
    /// What it came to.
    pub answer: Answer,
}

impl Trouble {
    /// Of a step that came to this.
    pub(super) const fn of(step: &Step, answer: Answer) -> Self {
        Self {
            stage: step.stage(),
            process: step.process(),
            answer,
        }
    }

    /// Work in flight did not end in time: that of a thread inside a driver call, or that of the device.
    #[must_use]
    pub const fn is_work_in_flight(&self) -> bool {
        match self.answer {
            Answer::TimedOut => matches!(self.stage, Some(Stage::NobodyInside | Stage::HoldHard)),
            Answer::Refused(code::NOT_READY) => matches!(self.stage, Some(Stage::Lock)),
            _ => false,
        }
    }

    /// A process ended before anything had left.
    pub(super) const fn gone(process: Process) -> Self {
        Self {
            stage: None,
            process: Some(process),
            answer: Answer::Gone,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.stage.map_or("ask the driver for its state", Stage::text);
        match self.process {
            Some(process) => write!(out, "pid {}: could not {what}: ", process.pid)?,
            None => write!(out, "could not {what}: ")?,
        }
        match (self.answer, self.stage) {
            (Answer::Gone, _) => out.write_str("the process ended"),
            (Answer::Stopped, _) => out.write_str("the process is stopped (kill -CONT lets it go on)"),
            (Answer::HelperLost, _) => out.write_str("the helper that calls the driver died each time"),
            (Answer::NoRoom, _) => out.write_str("the memory is used by others"),
            (Answer::TimedOut, Some(Stage::NobodyInside | Stage::HoldHard)) => {
                out.write_str("a thread stayed inside a driver call for too long")
            }
            (Answer::TimedOut, Some(Stage::NvmlClear)) => out.write_str("NVML still shows the process"),
            (Answer::TimedOut, _) => out.write_str("no answer in time"),
            (Answer::Refused(code), stage) => refusal(code, stage, out),
            (Answer::Done | Answer::Is(_) | Answer::At(_), _) => out.write_str("another answer was due"),
        }
    }
}

fn refusal(code: i32, stage: Option<Stage>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let meaning = match (code, stage) {
        (code::NOT_READY, _) => "work on the GPU did not end in time",
        (code::NOT_SUPPORTED, Some(Stage::Checkpoint)) => {
            "the process has memory that the driver cannot move (managed)"
        }
        (code::OUT_OF_MEMORY, Some(Stage::Checkpoint)) => {
            "the driver has no host memory for it, or the GPU is in MIG mode"
        }
        (code::OUT_OF_MEMORY, Some(Stage::Restore)) => "the GPU was full; the process can never run again",
        (code::INVALID_VALUE, Some(Stage::Restore)) => "the driver refuses this exchange of devices",
        (code::OPERATING_SYSTEM, _) => "the driver reaches no such process",
        (code::ILLEGAL_STATE, _) => "another program changed its state meanwhile",
        _ => return out.write_str(&driver_answered(code)),
    };
    write!(out, "{meaning} ({code})")
}

/// A code of the driver (`CUresult`) with its name, and what it means of a process or a device that is asked about.
#[must_use]
pub fn driver_answered(code: i32) -> String {
    let (name, meaning) = match code {
        code::INVALID_VALUE => ("INVALID_VALUE", "it does not take these arguments"),
        code::OUT_OF_MEMORY => ("OUT_OF_MEMORY", "there is not enough memory"),
        code::NOT_INITIALIZED => ("NOT_INITIALIZED", "there is no CUDA in it"),
        34 => ("STUB_LIBRARY", "it is no driver, but a stub"),
        100 => ("NO_DEVICE", "it finds no GPU"),
        101 => ("INVALID_DEVICE", "there is no such GPU"),
        201 => ("INVALID_CONTEXT", "the context is not usable"),
        code::OPERATING_SYSTEM => (
            "OPERATING_SYSTEM",
            "it does not reach the process, which has ended or may not be opened from here",
        ),
        code::ILLEGAL_STATE => ("ILLEGAL_STATE", "the process is in another state than the call needs"),
        code::NOT_READY => ("NOT_READY", "work on the GPU did not end in time"),
        719 => ("LAUNCH_FAILED", "a kernel of it failed, and its context is lost"),
        code::NOT_SUPPORTED => ("NOT_SUPPORTED", "this driver or GPU cannot do that"),
        803 => ("SYSTEM_DRIVER_MISMATCH", "the driver's parts are of different versions"),
        999 => ("UNKNOWN", "the driver does not say what failed"),
        _ => return format!("the driver answered {code}"),
    };
    format!("the driver answered CUDA_ERROR_{name} ({code}): {meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_the_driver_has_its_name_and_what_it_means() {
        let said = driver_answered(code::OPERATING_SYSTEM);
        assert!(
            said.starts_with("the driver answered CUDA_ERROR_OPERATING_SYSTEM (304): it does not reach the process")
        );
        assert_eq!(driver_answered(12_345), "the driver answered 12345");
        let unlock = Trouble {
            stage: Some(Stage::Unlock),
            process: None,
            answer: Answer::Refused(201),
        };
        assert!(
            unlock.to_string().contains("CUDA_ERROR_INVALID_CONTEXT (201)"),
            "{unlock}"
        );
    }
}

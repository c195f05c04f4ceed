// SPDX-License-Identifier: Apache-2.0
//! Devices without memory of their own (GB10, Jetson Thor): NVML answers NOT_SUPPORTED when it is asked for their
//! memory. The driver knows its size, and the host what is left of it.
//!
//! The driver is asked in the NVML helper, which the broker can kill like NVML itself, and only where there is such a
//! device. It needs no context for the answer.

use std::path::Path;

use crate::host::checkpoint::CudaDriver;
use crate::host::gpu::Sample;
use crate::host::host_memory;

/// The driver, loaded at the first device that needs it; or why it cannot be.
#[derive(Debug, Default)]
pub(super) struct Unified(Option<Result<CudaDriver, String>>);

impl Unified {
    /// The size of a device's memory.
    ///
    /// # Errors
    /// Why the driver does not tell.
    pub(super) fn total(&mut self, uuid: &str, driver_file: Option<&Path>) -> Result<u64, String> {
        let open = || CudaDriver::open(driver_file).map(|(driver, _)| driver);
        match self.0.get_or_insert_with(open) {
            Ok(driver) => driver.total_memory(uuid).map_err(|refused| refused.to_string()),
            Err(why) => Err(why.clone()),
        }
    }

    /// What the host has left. A simulated machine has a host of its own, of which its driver tells.
    pub(super) fn available(&self) -> Option<u64> {
        let simulated = match &self.0 {
            Some(Ok(driver)) => driver.simulated_host(),
            _ => None,
        };
        simulated.or_else(host_memory::available_here)
    }
}

/// What is kept available to the host, of memory of this size: a host without memory ends processes.
pub(super) fn reserve(total: u64) -> u64 {
    const MOST: u64 = 4 << 30;
    (total / 16).min(MOST)
}

/// What is in use and free of `total` bytes of the host's memory while it has `available` left. A host can have more
/// memory than the device uses: then what NVML lists by process is all that is known to be in use.
pub(super) fn set_memory(sample: &mut Sample, total: u64, available: Option<u64>) {
    let listed = sample.processes.iter().filter_map(|process| process.used);
    let listed = listed.fold(0, u64::saturating_add).min(total);
    sample.free = available.unwrap_or(u64::MAX).min(total - listed);
    sample.used = total - sample.free;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::gpu::GpuProcess;

    fn sample(used: &[Option<u64>]) -> Sample {
        let process = |(at, used): (usize, &Option<u64>)| GpuProcess {
            pid: at as u32 + 1,
            used: *used,
            is_graphics_only: false,
            busy_percent: None,
        };
        Sample {
            processes: used.iter().enumerate().map(process).collect(),
            ..Sample::default()
        }
    }

    fn of(processes: &[Option<u64>], available: Option<u64>) -> (u64, u64) {
        let mut sample = sample(processes);
        set_memory(&mut sample, 100, available);
        (sample.used, sample.free)
    }

    #[test]
    fn what_the_host_lacks_the_device_lacks() {
        assert_eq!(of(&[], Some(70)), (30, 70));
        assert_eq!(of(&[Some(20), None], Some(70)), (30, 70));
        assert_eq!(of(&[Some(20)], Some(0)), (100, 0));
    }

    #[test]
    fn nothing_is_free_that_a_process_holds() {
        assert_eq!(of(&[Some(20), Some(5)], Some(400)), (25, 75), "a host with more memory");
        assert_eq!(of(&[Some(20)], None), (20, 80), "a kernel that does not say");
        assert_eq!(of(&[Some(99), Some(50)], Some(70)), (100, 0), "more than there is");
    }
}

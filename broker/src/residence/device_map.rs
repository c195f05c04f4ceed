// SPDX-License-Identifier: Apache-2.0
//! Restoring onto other devices (`restore --gpu-map`): which device takes the place of which, pure; and for whom that
//! is still to be done.
//!
//! A driver's map names every device of the machine that a process left, whether the process used it or not, and every
//! device of the machine of now, each once. The job's own go where the command says. The others stay what they are
//! where they are there and free; what is left of both sides is paired in order, equals with equals.
//!
//! A restored process is mapped once. From then on its memory is of the new devices, and another map would be refused:
//! before it is checkpointed here for the first time, it is struck off the list.

use std::path::PathBuf;

use partage_policy::Process;
use partage_protocol::size::format_bytes;
use partage_protocol::snapshot::{SavedDevice, Unfit};
use partage_protocol::units::{DeviceUuid, JobId};
use serde::{Deserialize, Serialize};

use super::facts::shown_to;
use crate::host::proc;
use crate::kept_file::write_whole;
use crate::site::Site;

/// An old device and the one in its place.
type Pair = (String, String);

/// The map of a restored job, on disk until it has come back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RestoredMap {
    /// All of it.
    pairs: Vec<Pair>,
    /// The processes that it is for, as they number themselves.
    left: Vec<u32>,
}

impl RestoredMap {
    /// A map for these processes.
    pub(super) const fn new(pairs: Vec<Pair>, left: Vec<u32>) -> Self {
        Self { pairs, left }
    }
}

/// A device is another one than that which it would replace.
pub(super) fn is_like(saved: &SavedDevice, here: &SavedDevice, gpu: &str) -> Result<(), Unfit> {
    let unfit = |why: String| Err(Unfit::new("devices", why));
    let uuid = &saved.uuid;
    if here.name != saved.name {
        return unfit(format!(
            "{uuid} was saved as {}, and {gpu} is {}",
            saved.name, here.name
        ));
    }
    if here.total_bytes != saved.total_bytes {
        let (was, is) = (format_bytes(saved.total_bytes), format_bytes(here.total_bytes));
        return unfit(format!(
            "{uuid} had {was} of memory as it was saved, and {gpu} has {is}"
        ));
    }
    Ok(())
}

/// The whole map of a job that had the devices `saved`, of a machine with `machine`, and has `own` of those `here`.
/// Empty where it has the same.
///
/// # Errors
/// [`Unfit`]: a driver takes no such map.
pub(super) fn whole(
    (saved, machine): (&[SavedDevice], &[SavedDevice]),
    (own, here): (&[SavedDevice], &[SavedDevice]),
) -> Result<Vec<Pair>, Unfit> {
    let uuids = |devices: &[SavedDevice]| devices.iter().map(|device| device.uuid.clone()).collect::<Vec<_>>();
    if uuids(saved) == uuids(own) {
        return Ok(Vec::new());
    }
    // Formats 1 and 2 do not say: the machine of now, which it has to be.
    let machine = if machine.is_empty() { here } else { machine };
    if machine.len() != here.len() {
        let (were, are) = (machine.len(), here.len());
        let why = format!("the job saw a machine of {were} GPUs as it was saved, and there are {are} here");
        return Err(Unfit::new("machine", why + ": a driver maps all of them or none"));
    }
    let mut pairs: Vec<Pair> = uuids(saved).into_iter().zip(uuids(own)).collect();
    let is_new = |pairs: &[Pair], uuid: &str| pairs.iter().any(|(_, new)| new == uuid);
    let is_old = |pairs: &[Pair], uuid: &str| pairs.iter().any(|(old, _)| old == uuid);
    for device in machine {
        if !is_old(&pairs, &device.uuid) && !is_new(&pairs, &device.uuid) && here.contains(device) {
            pairs.push((device.uuid.clone(), device.uuid.clone()));
        }
    }
    for device in machine {
        if is_old(&pairs, &device.uuid) {
            continue;
        }
        let is_equal = |other: &&SavedDevice| is_like(device, other, "").is_ok() && !is_new(&pairs, &other.uuid);
        let Some(other) = here.iter().find(is_equal) else {
            let why = format!(
                "{} ({}, {}) has no counterpart here: a driver maps all GPUs that the job saw, or none",
                device.uuid,
                device.name,
                format_bytes(device.total_bytes)
            );
            return Err(Unfit::new("machine", why));
        };
        pairs.push((device.uuid.clone(), other.uuid.clone()));
    }
    if pairs.len() != here.len() {
        let why = "the snapshot does not say which GPUs its machine had, and the job's are not here".to_owned();
        return Err(Unfit::new("machine", why));
    }
    Ok(pairs)
}

/// What a snapshot says of a device.
pub(super) fn saved_device(site: &Site, device: DeviceUuid) -> SavedDevice {
    let facts = site.devices.list().get(&device);
    SavedDevice {
        uuid: device.to_string(),
        name: facts.map(|facts| facts.model.clone()).unwrap_or_default(),
        total_bytes: facts.map_or(0, |facts| facts.total),
    }
}

/// The devices that the kernel shows to a process.
pub(super) fn machine_of(site: &Site, process: Process) -> Vec<SavedDevice> {
    let shown = shown_to(site, process).into_iter();
    shown.map(|device| saved_device(site, device)).collect()
}

/// Writes down which map the processes of a restored job are to come back by.
///
/// # Errors
/// The system's.
pub(super) fn write_map(site: &Site, job: JobId, map: &RestoredMap) -> std::io::Result<()> {
    write_whole(&map_file(site, job), &serde_json::to_vec(map)?)
}

/// The map of a restored process that was not mapped yet; empty for any other.
pub(super) fn restored_map(site: &Site, job: JobId, process: Process) -> Vec<Pair> {
    let map = read_map(site, job).unwrap_or_default();
    let number = proc::inner_number(process.pid);
    let is_left = number.is_some_and(|number| map.left.contains(&number));
    if is_left { map.pairs } else { Vec::new() }
}

/// It is about to be checkpointed: what it has is on its job's own devices.
///
/// # Errors
/// The system's: it could not be told later.
pub(super) fn note_mapped(site: &Site, job: JobId, process: Process) -> std::io::Result<()> {
    // Most jobs have none.
    let Some(mut map) = read_map(site, job) else {
        return Ok(());
    };
    let number = proc::inner_number(process.pid);
    map.left.retain(|left| Some(*left) != number);
    write_map(site, job, &map)
}

fn read_map(site: &Site, job: JobId) -> Option<RestoredMap> {
    serde_json::from_slice(&std::fs::read(map_file(site, job)).ok()?).ok()
}

pub(super) fn map_file(site: &Site, job: JobId) -> PathBuf {
    site.directory.snapshots().join(format!("{job}.map"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, model: &str) -> SavedDevice {
        SavedDevice {
            uuid: name.to_owned(),
            name: model.to_owned(),
            total_bytes: 1 << 34,
        }
    }

    fn devices(names: &str) -> Vec<SavedDevice> {
        names.chars().map(|name| device(&name.to_string(), "h200")).collect()
    }

    /// The map as `ab cd`: a becomes b, c becomes d.
    fn map(saved: &str, machine: &str, own: &str, here: &str) -> Result<String, &'static str> {
        let (saved, machine) = (devices(saved), devices(machine));
        let (own, here) = (devices(own), devices(here));
        let mut pairs = whole((&saved, &machine), (&own, &here)).map_err(|unfit| unfit.field)?;
        pairs.sort();
        let texts: Vec<String> = pairs.into_iter().map(|(old, new)| old + &new).collect();
        Ok(texts.join(" "))
    }

    #[test]
    fn a_map_names_every_device_of_both_machines_once() {
        let text = |text: &str| Ok(text.to_owned());
        assert_eq!(map("a", "ab", "a", "ab"), text(""), "the same device");
        assert_eq!(map("a", "ab", "b", "ab"), text("ab ba"));
        assert_eq!(map("a", "abc", "c", "abc"), text("ac bb ca"));
        assert_eq!(map("ab", "abc", "bc", "abc"), text("ab bc ca"), "a circle");
        assert_eq!(map("ab", "abc", "ba", "abc"), text("ab ba cc"), "two change places");
        assert_eq!(map("a", "ab", "x", "xy"), text("ax by"), "another machine");
        assert_eq!(map("a", "ab", "x", "bx"), text("ax bb"), "one was replaced");
        // A snapshot that does not say what its machine had.
        assert_eq!(map("a", "", "b", "ab"), text("ab ba"));
        assert_eq!(map("a", "", "x", "xy"), Err("machine"));
        assert_eq!(map("a", "abc", "x", "xy"), Err("machine"), "one too few");
        assert_eq!(map("a", "a", "x", "xy"), Err("machine"), "one too many");
    }

    #[test]
    fn a_device_without_an_equal_is_named() {
        let machine = [device("a", "h200"), device("b", "l4")];
        let here = [device("x", "h200"), device("y", "h200")];
        let unfit = whole((&machine[..1], &machine), (&here[..1], &here)).expect_err("no l4");
        assert!(
            unfit
                .to_string()
                .starts_with("machine: b (l4, 16 GiB) has no counterpart"),
            "{unfit}"
        );
        let larger = SavedDevice {
            total_bytes: 1 << 35,
            ..device("z", "h200")
        };
        let unfit = is_like(&machine[0], &larger, "GPU 3").expect_err("another size");
        let text = "devices: a had 16 GiB of memory as it was saved, and GPU 3 has 32 GiB";
        assert_eq!(unfit.to_string(), text);
        let unfit = is_like(&machine[0], &device("z", "l4"), "GPU 3").expect_err("another model");
        assert_eq!(unfit.to_string(), "devices: a was saved as h200, and GPU 3 is l4");
        assert_eq!(is_like(&machine[0], &here[1], "GPU 1"), Ok(()));
    }
}

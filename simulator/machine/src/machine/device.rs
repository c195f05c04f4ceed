// SPDX-License-Identifier: Apache-2.0
//! The devices of a machine, as its file and their profiles say.

use std::path::Path;

use super::identity::uuid;
use crate::faults::Faults;
use crate::profile::Profile;
use crate::spec::{DeviceSpec, Error, Spec};
use crate::timeline::Settings;

/// The page size of a device's address translation.
const PAGE: u64 = 2 << 20;

/// Instances are numbered from here on, after all devices.
const FIRST_INSTANCE: u64 = 1 << 32;

/// One device of an open machine.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its place in PCI order.
    pub index: usize,
    /// Its model.
    pub profile: Profile,
    /// Its memory in bytes.
    pub memory: u64,
    /// What the host's own programs have of it, where device and host share it.
    pub host_bytes: Option<u64>,
    /// What one context costs, in bytes.
    pub context_bytes: u64,
    /// How much a stream-ordered pool takes at once, in bytes: a multiple of 2 MiB.
    pub pool_growth_bytes: u64,
    /// It waits for no client.
    pub keeps_pace: bool,
    /// Its identity, as `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// In MIG mode the identity of its one instance, as `cuDeviceGetUuid_v2` gives it.
    pub instance: Option<[u8; 16]>,
    /// PCI bus number; domain, device and function are 0.
    pub pci_bus: u32,
}

impl Device {
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub fn uuid_text(&self) -> String {
        text("GPU", self.uuid)
    }

    /// `MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, in MIG mode.
    pub fn instance_text(&self) -> Option<String> {
        self.instance.map(|uuid| text("MIG", uuid))
    }

    /// An attribute by number, with the ones that depend on the slot. `None` for an unknown number.
    pub fn attribute(&self, number: i32) -> Option<i32> {
        match number {
            33 => Some(self.pci_bus as i32),
            34 | 50 => Some(0),
            139 => Some(self.profile.pci_device as i32),
            140 => Some(self.profile.pci_subsystem as i32),
            _ => self.profile.attribute(number),
        }
    }
}

fn text(kind: &str, uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("{kind}-{}", parts.join("-"))
}

/// How a device's engines are shared.
pub(super) fn settings(of: &Device) -> Settings {
    Settings {
        slice_ns: of.profile.speed.quantum_ns,
        switch_tax_ns: of.profile.speed.switch_ns,
        ..if of.keeps_pace {
            Settings::KEEPS_PACE
        } else {
            Settings::default()
        }
    }
}

/// What processes can hold of a device.
pub(super) fn capacity(of: &Device, faults: &Faults) -> u64 {
    match of.host_bytes {
        None => of.memory,
        Some(bytes) => of.memory.saturating_sub(bytes.saturating_add(faults.host_bytes())),
    }
}

/// Copies profiles that are named by file into the machine's folder, so that it depends on nothing outside.
pub(super) fn adopt_profiles(spec: &mut Spec, folder: &Path) -> Result<(), Error> {
    for device in &mut spec.devices {
        let file = Path::new(&device.profile);
        let is_file = file.extension().is_some_and(|extension| extension == "toml");
        let Some(name) = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .filter(|_| is_file)
            .map(str::to_owned)
        else {
            continue;
        };
        let own = folder.join("profiles");
        std::fs::create_dir_all(&own).map_err(Error::file("creating", &own))?;
        std::fs::copy(file, own.join(format!("{name}.toml"))).map_err(Error::file("copying the profile", file))?;
        device.profile = name;
    }
    Ok(())
}

/// The devices of a machine in `folder`, in PCI order.
pub(super) fn devices(spec: &Spec, folder: &Path) -> Result<Vec<Device>, Error> {
    let device = |(index, given): (usize, &DeviceSpec)| {
        let profile = Profile::find(&given.profile, folder)?;
        let memory = given.memory.unwrap_or(profile.memory);
        let context_bytes = given.context_bytes.unwrap_or(profile.context_bytes.min(memory / 16));
        Ok(Device {
            index,
            memory,
            host_bytes: profile.unified.map(|unified| unified.host_bytes.min(memory / 32)),
            context_bytes,
            pool_growth_bytes: growth(given.pool_growth_bytes, profile.pool_growth_bytes, memory),
            keeps_pace: given.keeps_pace,
            uuid: uuid(spec.id, index as u64),
            instance: given.mig.then(|| uuid(spec.id, FIRST_INSTANCE + index as u64)),
            // Spread as in a server; 16 devices stay below 256.
            pci_bus: 0x10 + 0x0d * index as u32,
            profile,
        })
    };
    spec.devices.iter().enumerate().map(device).collect()
}

/// What a pool takes at once: what is asked for, else the model's in proportion to a small memory.
pub(super) fn growth(asked: Option<u64>, of_model: u64, memory: u64) -> u64 {
    let bytes = asked.unwrap_or_else(|| of_model.min(memory / 64 / PAGE * PAGE));
    bytes.max(PAGE).next_multiple_of(PAGE)
}

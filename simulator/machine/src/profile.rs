// SPDX-License-Identifier: Apache-2.0
//! What one GPU model is like: names, sizes, speeds and attribute values, read from a profile file.
//!
//! A profile is TOML; `profiles/h200.toml` is the complete one and documents every key, the others inherit from it
//! and override. A machine's folder may hold profiles of its own in `profiles/NAME.toml`; they come first.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::spec::Error;

/// The profiles inside the library: name and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("h200", include_str!("../profiles/h200.toml")),
    ("a100", include_str!("../profiles/a100.toml")),
    ("l4", include_str!("../profiles/l4.toml")),
    ("t4", include_str!("../profiles/t4.toml")),
    ("gb10", include_str!("../profiles/gb10.toml")),
];

/// One GPU model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Product name, as `cuDeviceGetName` says it.
    pub name: String,
    /// Device memory in bytes.
    pub memory: u64,
    /// Device memory that one context costs, in bytes.
    pub context_bytes: u64,
    /// How much a stream-ordered pool takes of the device at once, in bytes.
    pub pool_growth_bytes: u64,
    /// PCI device (high half) and vendor (low half).
    pub pci_device: u32,
    /// PCI subsystem, likewise.
    pub pci_subsystem: u32,
    /// It has no memory of its own: this is the host's.
    #[serde(default)]
    pub unified: Option<Unified>,
    /// Rates and slices of the device timeline.
    pub speed: Speed,
    /// How long a kernel takes, by name, in nanoseconds.
    pub kernel_ns: BTreeMap<String, u64>,
    /// What NVML says.
    pub nvml: Nvml,
    /// `CU_DEVICE_ATTRIBUTE_*` by number. Absent ones are 0.
    #[serde(deserialize_with = "numbered")]
    pub attributes: BTreeMap<i32, i32>,
}

/// Memory that device and host share.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unified {
    /// What the host's own programs have of it, in bytes.
    pub host_bytes: u64,
}

/// Rates in bytes per second, times in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Host to device.
    pub host_to_device: u64,
    /// Device to host.
    pub device_to_host: u64,
    /// Inside the device.
    pub device_to_device: u64,
    /// How long one context runs while another one waits.
    pub quantum_ns: u64,
    /// Device time lost at each change of context.
    pub switch_ns: u64,
}

/// Constants that NVML reports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The names carry their units and are NVML's own.
pub struct Nvml {
    pub power_limit_mw: u32,
    pub power_idle_mw: u32,
    pub temperature_c: u32,
    pub temperature_shutdown_c: u32,
    pub temperature_slowdown_c: u32,
    pub temperature_memory_max_c: u32,
    pub temperature_gpu_max_c: u32,
    pub graphics_clock_mhz: u32,
    pub memory_clock_mhz: u32,
    pub architecture: u32,
    pub brand: u32,
    pub pcie_generation: u32,
    pub pcie_width: u32,
    pub cores: u32,
    pub vbios: String,
    pub part_number: String,
}

impl Profile {
    /// Finds a profile by name: in `folder/profiles/NAME.toml`, else among the built-in ones.
    pub fn find(name: &str, folder: &Path) -> Result<Self, Error> {
        let table = load(name, folder, 0)?;
        table.try_into().map_err(|source: toml::de::Error| Error::Profile {
            name: name.to_owned(),
            reason: source.message().to_owned(),
        })
    }

    /// The value of an attribute, `None` for a number that no CUDA release defines.
    pub fn attribute(&self, number: i32) -> Option<i32> {
        // 161 is the last one of CUDA 13.5; 92 to 94 are the withdrawn first versions of memory operations.
        (1..=161)
            .contains(&number)
            .then(|| self.attributes.get(&number).copied().unwrap_or(0))
    }
}

/// Keys of a TOML table are strings; attributes go by number.
fn numbered<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<i32, i32>, D::Error> {
    BTreeMap::<String, i32>::deserialize(from)?
        .into_iter()
        .map(|(key, value)| match key.parse() {
            Ok(number) => Ok((number, value)),
            Err(_) => Err(serde::de::Error::custom(format!("attribute `{key}` is not a number"))),
        })
        .collect()
}

fn load(name: &str, folder: &Path, depth: usize) -> Result<toml::Table, Error> {
    let fail = |reason: String| Error::Profile {
        name: name.to_owned(),
        reason,
    };
    // A name is one path component, so that a machine file cannot lead out of its folder.
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !is_plain || depth > 4 {
        return Err(fail("not a profile name, or profiles that inherit in a circle".into()));
    }
    let own = folder.join("profiles").join(format!("{name}.toml"));
    let text = match std::fs::read_to_string(&own) {
        Ok(text) => text,
        Err(_) => BUILT_IN
            .iter()
            .find(|(built_in, _)| *built_in == name)
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| fail(format!("unknown; built in are {}", names().join(", "))))?,
    };
    let mut table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| fail(e.message().to_owned()))?;
    let Some(parent) = table.remove("inherits") else {
        return Ok(table);
    };
    let parent = parent.as_str().ok_or_else(|| fail("`inherits` is not a name".into()))?;
    let mut merged = load(parent, folder, depth + 1)?;
    merge(&mut merged, table);
    Ok(merged)
}

/// The names of the built-in profiles.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_complete_and_different() {
        let profiles: Vec<_> = names()
            .into_iter()
            .map(|name| Profile::find(name, Path::new("/nonexistent")).expect(name))
            .collect();
        let mut products: Vec<_> = profiles.iter().map(|profile| profile.name.clone()).collect();
        products.sort();
        products.dedup();
        assert_eq!(products.len(), BUILT_IN.len());
        for profile in &profiles {
            assert_eq!(profile.attribute(10), Some(32), "warp size of {}", profile.name);
            assert!(
                profile.attribute(75) >= Some(7),
                "compute capability of {}",
                profile.name
            );
        }
        assert_eq!(profiles[0].attribute(0), None);
        assert_eq!(profiles[0].attribute(162), None);
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_known_ones() {
        let error = Profile::find("h900", Path::new("/nonexistent")).expect_err("no such model");
        assert!(error.to_string().contains("h200, a100, l4, t4, gb10"), "{error}");
        assert!(Profile::find("../h200", Path::new("/nonexistent")).is_err());
    }
}

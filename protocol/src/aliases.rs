// SPDX-License-Identifier: Apache-2.0
//! What other tools' memory variables ask for, device by device (the variables themselves: [`partage_wire::aliases`]).
//!
//! *Visible index*: a device's place among those that the program sees, which is its slot in the job.

use std::fmt;

pub use partage_wire::aliases::{Family, Fault, Gpu, Variable, entries, lowest, pinned};

/// An amount and the text that it was read from, for people: `CUDA_DEVICE_MEMORY_LIMIT=1g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// The variable and its value.
    pub text: String,
}

/// What the first family that says anything asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which one.
    pub family: Family,
    /// Promise on every device, where one is named.
    pub request: Option<Said>,
    /// Limit of every device that is not named below.
    pub everywhere: Option<Said>,
    /// Limits by visible index.
    pub visible: Vec<(u32, Said)>,
    /// Limits by UUID, whole or its beginning, in lower case.
    pub uuids: Vec<(String, Said)>,
}

/// A variable that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasError {
    /// `NAME=value`.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl AliasError {
    /// The variable.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.split('=').next().unwrap_or_default()
    }
}

impl fmt::Display for AliasError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.text, self.why)
    }
}

impl std::error::Error for AliasError {}

/// The variables of a packed `Hello` environment as text.
#[must_use]
pub fn unpacked(packed: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    entries(packed).map(|(name, value)| (text(name), text(value))).collect()
}

/// The first family of `variables` that `is_on` and says anything.
///
/// # Errors
/// [`AliasError`] for the first of its variables that cannot be read, or a request above its limit.
pub fn asked(variables: &[(String, String)], is_on: impl Fn(Family) -> bool) -> Result<Option<Asked>, AliasError> {
    let said: Vec<(Variable, &str, &str)> = variables
        .iter()
        .filter_map(|(name, value)| Some((Variable::of(name.as_bytes())?, name.as_str(), value.trim_ascii())))
        .filter(|(variable, _, value)| !value.is_empty() && is_on(variable.family()))
        .collect();
    let Some(family) = said.iter().map(|(variable, ..)| variable.family()).min() else {
        return Ok(None);
    };
    let mut asked = Asked {
        family,
        request: None,
        everywhere: None,
        visible: Vec::new(),
        uuids: Vec::new(),
    };
    for (variable, name, value) in said.into_iter().filter(|(variable, ..)| variable.family() == family) {
        let text = shown(name, value);
        let wrong = |fault: Fault| AliasError {
            text: text.clone(),
            why: fault.text().to_owned(),
        };
        let said = |bytes| Said {
            bytes,
            text: text.clone(),
        };
        let amount = variable.amount(value.as_bytes()).map_err(wrong)?;
        match (variable, amount) {
            (Variable::NvidiaRequest, Some(bytes)) => asked.request = Some(said(bytes)),
            (Variable::NvidiaLimit | Variable::Device, Some(bytes)) => asked.everywhere = Some(said(bytes)),
            (Variable::DeviceAt(index), Some(bytes)) => asked.visible.push((index, said(bytes))),
            _ => {
                for entry in pinned(value.as_bytes()) {
                    match entry.map_err(wrong)? {
                        (Gpu::Visible(index), bytes) => asked.visible.push((index, said(bytes))),
                        (Gpu::Uuid(uuid), bytes) => {
                            let uuid = String::from_utf8_lossy(uuid).to_ascii_lowercase();
                            asked.uuids.push((uuid, said(bytes)));
                        }
                    }
                }
            }
        }
    }
    if let Some(request) = &asked.request {
        match &asked.everywhere {
            None => asked.everywhere = Some(request.clone()),
            Some(limit) if limit.bytes < request.bytes => {
                return Err(AliasError {
                    text: request.text.clone(),
                    why: format!("is more than the limit {}", limit.text),
                });
            }
            Some(_) => {}
        }
    }
    Ok(Some(asked))
}

impl Asked {
    /// The limit of a device that the program sees at `visible` (`None`: it does not see it). The device's own entry
    /// comes before its index, and that before what holds everywhere; of two of a kind the lower holds.
    #[must_use]
    pub fn limit(&self, visible: Option<u32>, uuid: &str) -> Option<&Said> {
        let uuid = uuid.to_ascii_lowercase();
        let by_uuid = self.uuids.iter().filter(|(prefix, _)| uuid.starts_with(prefix));
        let by_index = self.visible.iter().filter(|(index, _)| Some(*index) == visible);
        lower(by_uuid.map(|(_, said)| said))
            .or_else(|| lower(by_index.map(|(_, said)| said)))
            .or(self.everywhere.as_ref())
    }

    /// The lowest of all its limits.
    #[must_use]
    pub fn lowest(&self) -> Option<&Said> {
        let named = self.visible.iter().map(|(_, said)| said);
        lower(
            named
                .chain(self.uuids.iter().map(|(_, said)| said))
                .chain(&self.everywhere),
        )
    }

    /// Are all devices that a list names among those that the program sees? An index beyond them in
    /// `CUDA_DEVICE_MEMORY_LIMIT_<i>` limits nothing and leaves nothing unlimited.
    ///
    /// # Errors
    /// [`AliasError`] naming the unknown device.
    pub fn check_devices(&self, uuids: &[String]) -> Result<(), AliasError> {
        let wrong = |said: &Said, why: String| {
            Err(AliasError {
                text: said.text.clone(),
                why,
            })
        };
        for (index, said) in self.visible.iter().filter(|_| self.family == Family::Pinned) {
            if *index as usize >= uuids.len() {
                let seen = uuids.len();
                return wrong(
                    said,
                    format!("names GPU {index}, and {seen} can be seen here (from 0 on)"),
                );
            }
        }
        for (prefix, said) in &self.uuids {
            let count = uuids
                .iter()
                .filter(|uuid| uuid.to_ascii_lowercase().starts_with(prefix))
                .count();
            match count {
                1 => {}
                0 => return wrong(said, format!("names {prefix}, which cannot be seen here")),
                _ => return wrong(said, format!("names {prefix}, the beginning of several UUIDs")),
            }
        }
        Ok(())
    }
}

fn lower<'a>(said: impl Iterator<Item = &'a Said>) -> Option<&'a Said> {
    said.min_by_key(|said| said.bytes)
}

/// `NAME=value` for a line of text: control characters escaped, at most 80 characters of the value.
pub(crate) fn shown(name: &str, value: &str) -> String {
    let clean: String = value.chars().take(80).flat_map(char::escape_debug).collect();
    let mark = if value.chars().nth(80).is_some() { "…" } else { "" };
    format!("{name}={clean}{mark}")
}

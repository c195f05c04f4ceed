// SPDX-License-Identifier: Apache-2.0
//! A GPU as people name it.

/// One device as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuName {
    /// `nvidia-smi`'s number.
    Index(u32),
    /// `GPU-…` or `MIG-…`, whole or the beginning of one, in lower case.
    Uuid(String),
}

impl GpuName {
    /// Reads one name; `None` when it is neither an index nor the beginning of a UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return text.parse().ok().map(Self::Index);
        }
        let lower = text.to_ascii_lowercase();
        let is_uuid = |prefix: &str| lower.strip_prefix(prefix).is_some_and(is_hexadecimal);
        (is_uuid("gpu-") || is_uuid("mig-")).then_some(Self::Uuid(lower))
    }

    /// Does it mean the device of this index and UUID?
    #[must_use]
    pub fn means(&self, index: u32, uuid: &str) -> bool {
        match self {
            Self::Index(other) => *other == index,
            Self::Uuid(prefix) => uuid.to_ascii_lowercase().starts_with(prefix),
        }
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.len() <= 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

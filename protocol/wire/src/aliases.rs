// SPDX-License-Identifier: Apache-2.0
//! Parses other tools' memory variables; the library, the broker and the command line share this parser.
//!
//! | family, the first that says anything counts | unit | of which device |
//! |---|---|---|
//! | `NVIDIA_GPU_MEMORY_REQUEST`, `NVIDIA_GPU_MEMORY_LIMIT` | whole MiB; a missing one copies the other | every |
//! | `CUDA_DEVICE_MEMORY_LIMIT`, `CUDA_DEVICE_MEMORY_LIMIT_<i>` | `1g`, `512k`; else bytes | every; the i-th visible |
//! | `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` | `0=2G,GPU-…=512M`, a unit is needed | the named |
//!
//! A value that cannot be read is a [`Fault`], never "no limit"; an empty variable is an unset one. Nothing here
//! allocates or can panic: the preloaded library calls it. All amounts in bytes, base 1024.

use crate::message::MAX_DEVICES;

/// Variables of one origin; the order of the variants is their precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// `NVIDIA_GPU_MEMORY_*`.
    Nvidia,
    /// `CUDA_DEVICE_MEMORY_LIMIT*`.
    Device,
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.
    Pinned,
}

impl Family {
    /// Every family, the first counts first.
    pub const ALL: [Self; 3] = [Self::Nvidia, Self::Device, Self::Pinned];

    /// The key that switches it in the configuration's `[aliases]`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia_gpu_memory",
            Self::Device => "cuda_device_memory_limit",
            Self::Pinned => "cuda_mps_pinned_device_mem_limit",
        }
    }
}

/// One variable that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `NVIDIA_GPU_MEMORY_REQUEST`.
    NvidiaRequest,
    /// `NVIDIA_GPU_MEMORY_LIMIT`.
    NvidiaLimit,
    /// `CUDA_DEVICE_MEMORY_LIMIT`.
    Device,
    /// `CUDA_DEVICE_MEMORY_LIMIT_<i>`: the i-th device that the program sees.
    DeviceAt(u32),
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.
    Pinned,
}

impl Variable {
    /// Reads a variable's name; `None` for every other one.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"NVIDIA_GPU_MEMORY_REQUEST" => Some(Self::NvidiaRequest),
            b"NVIDIA_GPU_MEMORY_LIMIT" => Some(Self::NvidiaLimit),
            b"CUDA_DEVICE_MEMORY_LIMIT" => Some(Self::Device),
            b"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" => Some(Self::Pinned),
            _ => {
                let digits = name.strip_prefix(b"CUDA_DEVICE_MEMORY_LIMIT_")?;
                let (index, rest) = number(digits).ok()?;
                let index = u32::try_from(index).ok()?;
                (rest.is_empty() && (index as usize) < MAX_DEVICES).then_some(Self::DeviceAt(index))
            }
        }
    }

    /// Whose it is.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::NvidiaRequest | Self::NvidiaLimit => Family::Nvidia,
            Self::Device | Self::DeviceAt(_) => Family::Device,
            Self::Pinned => Family::Pinned,
        }
    }

    /// The one amount that a value gives. `None` for [`Variable::Pinned`], whose value is a list.
    ///
    /// # Errors
    /// [`Fault`] when the value is no amount.
    pub fn amount(self, value: &[u8]) -> Result<Option<u64>, Fault> {
        match self {
            Self::NvidiaRequest | Self::NvidiaLimit => mebibytes(value).map(Some),
            Self::Device | Self::DeviceAt(_) => size(value, true).map(Some),
            Self::Pinned => Ok(None),
        }
    }
}

/// Other tools' variables about device time; the order of the variants is their precedence. Only their names are read
/// here: the library passes them on, and the broker reads the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeVariable {
    /// `CUDA_DEVICE_SM_LIMIT`.
    SmLimit,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`.
    ActiveThreads,
    /// `CUDA_TASK_PRIORITY`.
    TaskPriority,
}

impl TimeVariable {
    /// Every variable.
    pub const ALL: [Self; 3] = [Self::SmLimit, Self::ActiveThreads, Self::TaskPriority];

    /// Reads a variable's name; `None` for every other one.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"CUDA_DEVICE_SM_LIMIT" => Some(Self::SmLimit),
            b"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" => Some(Self::ActiveThreads),
            b"CUDA_TASK_PRIORITY" => Some(Self::TaskPriority),
            _ => None,
        }
    }

    /// The key that switches it in the configuration's `[aliases]`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::SmLimit => "cuda_device_sm_limit",
            Self::ActiveThreads => "cuda_mps_active_thread_percentage",
            Self::TaskPriority => "cuda_task_priority",
        }
    }
}

/// A device as the list of [`Variable::Pinned`] names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu<'a> {
    /// The i-th that the program sees.
    Visible(u32),
    /// `GPU-…` or `MIG-…`, whole or its beginning, as written.
    Uuid(&'a [u8]),
}

/// Why a value is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not start with a whole number.
    NotANumber,
    /// Zero bytes.
    Zero,
    /// More than 64 bits hold.
    TooLarge,
    /// A unit that the variable does not take.
    Unit,
    /// A number without the unit that the variable demands.
    NoUnit,
    /// A list entry that names no device.
    Gpu,
    /// A list entry without `=`.
    Entry,
    /// More variables than a process may have.
    TooLong,
}

impl Fault {
    /// What is wrong, to follow the variable and its value.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotANumber => "is no whole number",
            Self::Zero => "is no memory at all: unset it where no limit is meant",
            Self::TooLarge => "is more than 64 bits can hold",
            Self::Unit => "has a unit that this variable does not take",
            Self::NoUnit => "needs a unit, such as 2G or 512M",
            Self::Gpu => "names no device: write 0=2G or GPU-UUID=2G",
            Self::Entry => "has an entry without =: write 0=2G,1=512M",
            Self::TooLong => "is too long",
        }
    }
}

/// The entries of `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, each a device and its bytes.
pub fn pinned(value: &[u8]) -> impl Iterator<Item = Result<(Gpu<'_>, u64), Fault>> {
    value.split(|byte| *byte == b',').map(|entry| {
        let mut parts = entry.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or(&[]).trim_ascii();
        let amount = parts.next().ok_or(Fault::Entry)?.trim_ascii();
        Ok((gpu(name)?, size(amount, false)?))
    })
}

/// Variables as a process carries them in its `Hello`: `NAME=value` and a zero, one after the other.
pub fn entries(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    packed.split(|byte| *byte == 0).filter_map(|entry| {
        let mut parts = entry.splitn(2, |byte| *byte == b'=');
        let name = parts.next().filter(|name| !name.is_empty())?;
        Some((name, parts.next()?))
    })
}

/// The lowest amount that the first family among `packed` gives: what holds for every device while nobody tells them
/// apart. `None` when no family says anything.
#[must_use]
pub fn lowest(packed: &[u8]) -> Option<Result<u64, Fault>> {
    let said = |family: Family| {
        entries(packed).filter_map(move |(name, value)| {
            let variable = Variable::of(name).filter(|variable| variable.family() == family)?;
            let value = value.trim_ascii();
            (!value.is_empty()).then_some((variable, value))
        })
    };
    let family = Family::ALL.into_iter().find(|family| said(*family).next().is_some())?;
    let (mut lowest, mut limit) = (u64::MAX, None);
    for (variable, value) in said(family) {
        match variable.amount(value) {
            Ok(Some(bytes)) if variable == Variable::NvidiaLimit => limit = Some(bytes),
            Ok(Some(bytes)) => lowest = lowest.min(bytes),
            Ok(None) => {
                for entry in pinned(value) {
                    match entry {
                        Ok((_, bytes)) => lowest = lowest.min(bytes),
                        Err(fault) => return Some(Err(fault)),
                    }
                }
            }
            Err(fault) => return Some(Err(fault)),
        }
    }
    // Of a request and a limit the limit holds; a request alone is both.
    Some(Ok(limit.unwrap_or(lowest)))
}

fn gpu(name: &[u8]) -> Result<Gpu<'_>, Fault> {
    let is_uuid = |prefix: &[u8]| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix) && name.len() > prefix.len())
    };
    if is_uuid(b"GPU-") || is_uuid(b"MIG-") {
        return Ok(Gpu::Uuid(name));
    }
    match number(name) {
        Ok((index, [])) => u32::try_from(index).map(Gpu::Visible).map_err(|_| Fault::Gpu),
        _ => Err(Fault::Gpu),
    }
}

fn mebibytes(value: &[u8]) -> Result<u64, Fault> {
    match number(value)? {
        (0, []) => Err(Fault::Zero),
        (mib, []) => mib.checked_mul(1 << 20).ok_or(Fault::TooLarge),
        _ => Err(Fault::Unit),
    }
}

fn size(value: &[u8], is_bare_allowed: bool) -> Result<u64, Fault> {
    let (count, unit) = number(value)?;
    let factor = match unit {
        [] if is_bare_allowed => 1,
        [] => return Err(Fault::NoUnit),
        [prefix, rest @ ..] => {
            let is_tail = [&b""[..], b"b", b"i", b"ib"]
                .iter()
                .any(|tail| rest.eq_ignore_ascii_case(tail));
            match (prefix.to_ascii_lowercase(), is_tail) {
                (b'k', true) => 1 << 10,
                (b'm', true) => 1 << 20,
                (b'g', true) => 1 << 30,
                (b't', true) => 1 << 40,
                (b'b', true) if rest.is_empty() => 1,
                _ => return Err(Fault::Unit),
            }
        }
    };
    match count.checked_mul(factor) {
        Some(0) => Err(Fault::Zero),
        Some(bytes) => Ok(bytes),
        None => Err(Fault::TooLarge),
    }
}

/// The digits at the start of a text as a number, and what follows them.
fn number(text: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let mut rest = text;
    let mut value: Option<u64> = Some(0);
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        value = value
            .and_then(|value| value.checked_mul(10))
            .and_then(|value| value.checked_add(u64::from(digit.wrapping_sub(b'0'))));
        rest = tail;
    }
    if rest.len() == text.len() {
        return Err(Fault::NotANumber);
    }
    value.map(|value| (value, rest)).ok_or(Fault::TooLarge)
}

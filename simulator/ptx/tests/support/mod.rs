// SPDX-License-Identifier: Apache-2.0
//! Device memory for tests: buffers at made-up device addresses with guard gaps between them.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod operation;

use std::sync::Mutex;

use partage_ptx::{DeviceMemory, Fault, Kernel, Launch, Module, Region, Stats};

/// Distance of two buffers: large enough that no test's overrun reaches the next.
const GAP: u64 = 1 << 32;
/// First device address, outside everything the process maps.
const START: u64 = 0x7a00_0000_0000;

/// Buffers of device memory.
#[derive(Default)]
pub struct Memory {
    buffers: Mutex<Vec<(u64, Vec<u128>, u64)>>,
}

impl Memory {
    /// A zeroed buffer; returns its device address.
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut buffers = self.buffers.lock().unwrap();
        let address = START + buffers.len() as u64 * GAP;
        buffers.push((address, vec![0; bytes.div_ceil(16)], bytes as u64));
        address
    }

    /// A buffer with content.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let address = self.allocate(size_of_val(values));
        let host = self.resolve(address, size_of_val(values) as u64).unwrap();
        // SAFETY: the buffer has that size; alignment is that of u128.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), host.cast(), values.len()) };
        address
    }

    /// The content of a buffer.
    pub fn download<T: Copy>(&self, address: u64, count: usize) -> Vec<T> {
        let host = self.resolve(address, (count * size_of::<T>()) as u64).unwrap();
        // SAFETY: as above.
        (0..count)
            .map(|index| unsafe { *host.cast::<T>().add(index) })
            .collect()
    }

    /// A module with its variables in this memory.
    pub fn load(&self, text: &str) -> Module {
        let mut module = Module::from_ptx(text).unwrap_or_else(|error| panic!("{error}"));
        let addresses: Vec<u64> = module
            .variables()
            .iter()
            .map(|variable| self.allocate(variable.bytes.max(1) as usize))
            .collect();
        module.place(&addresses).unwrap();
        for (index, address) in addresses.iter().enumerate() {
            let image = module.image(index);
            if !image.is_empty() {
                let host = self.resolve(*address, image.len() as u64).unwrap();
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), host, image.len()) };
            }
        }
        module
    }
}

impl DeviceMemory for Memory {
    fn region(&self, address: u64) -> Option<Region> {
        let mut buffers = self.buffers.lock().unwrap();
        let (start, words, bytes) = buffers
            .iter_mut()
            .find(|(start, _, bytes)| address >= *start && address - *start < *bytes)?;
        Some(Region {
            address: *start,
            bytes: *bytes,
            host: words.as_mut_ptr().cast(),
        })
    }
}

/// One kernel argument.
pub enum Argument {
    /// Four bytes.
    Word(u32),
    /// Eight bytes.
    Long(u64),
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::Word(value)
    }
}
impl From<i32> for Argument {
    fn from(value: i32) -> Self {
        Self::Word(value as u32)
    }
}
impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::Word(value.to_bits())
    }
}
impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::Long(value)
    }
}

/// Lays out arguments as the kernel's parameters say.
pub fn arguments(kernel: &Kernel, values: &[Argument]) -> Vec<u8> {
    let mut bytes = vec![0; kernel.parameter_bytes() as usize];
    assert_eq!(kernel.parameters().len(), values.len(), "number of arguments");
    for (parameter, value) in kernel.parameters().iter().zip(values) {
        let (word, size) = match value {
            Argument::Word(word) => (u64::from(*word), 4),
            Argument::Long(word) => (*word, 8),
        };
        assert_eq!(parameter.size, size, "size of an argument");
        bytes[parameter.offset as usize..][..size as usize].copy_from_slice(&word.to_le_bytes()[..size as usize]);
    }
    bytes
}

/// Runs a kernel of a module.
pub fn run(
    memory: &Memory,
    module: &Module,
    name: &str,
    grid: [u32; 3],
    block: [u32; 3],
    values: &[Argument],
    workers: usize,
) -> Result<Stats, Fault> {
    let kernel = module.kernel(name).unwrap_or_else(|| panic!("kernel {name}"));
    let parameters = arguments(&kernel, values);
    let launch = Launch {
        grid,
        block,
        dynamic_shared: 0,
        parameters: &parameters,
        stop: None,
    };
    kernel.run(&launch, memory, workers)
}

/// A module header for snippets.
pub const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

// SPDX-License-Identifier: Apache-2.0
//! A translated kernel: instructions, constants and layouts.

use super::lanes::{CONSTANT, Inst, LANES};
use super::shape::Shape;
use crate::hasher::Map;

/// Bytes of a row of 32-bit words.
pub const ROW32: u32 = 4 * LANES as u32;
/// Bytes of a row of 64-bit words.
pub const ROW64: u32 = 8 * LANES as u32;

/// Zeroed bytes aligned to a cache line.
#[derive(Clone, Default)]
pub struct Lines(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Lines {
    /// At least `bytes` zeros.
    pub fn new(bytes: usize) -> Self {
        Self(vec![Line([0; 64]); bytes.div_ceil(64)])
    }

    /// Grows to at least `bytes`, new ones being zero.
    pub fn grow(&mut self, bytes: usize) {
        if bytes > self.bytes() {
            self.0.resize(bytes.div_ceil(64), Line([0; 64]));
        }
    }

    /// Length.
    pub fn bytes(&self) -> usize {
        self.0.len() * 64
    }

    /// First byte.
    pub fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// First byte, to read.
    pub fn start_shared(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// Zeros everything.
    pub fn clear(&mut self) {
        self.0.fill(Line([0; 64]));
    }
}

/// Where an argument or return value is.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// A row, and whether its words have 64 bits.
    Row(u32, bool),
    /// Bytes of local memory from an offset within the function's part.
    Local(u32, u32),
}

/// What a call passes.
#[derive(Clone, Debug, Default)]
pub struct CallSite {
    /// Index of the called function, where it is known.
    pub function: u32,
    /// Arguments.
    pub arguments: Vec<Slot>,
    /// Where return values go.
    pub returns: Vec<Slot>,
}

/// A function's place in the code.
#[derive(Clone, Debug, Default)]
pub struct FunctionLayout {
    /// First instruction.
    pub start: u32,
    /// Bytes of registers.
    pub frame: u32,
    /// Bytes of local memory.
    pub local: u32,
    /// Parameters of a device function.
    pub parameters: Vec<Slot>,
    /// Return values of a device function.
    pub returns: Vec<Slot>,
    /// Identity in function pointers.
    pub address: u64,
}

/// What happens at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierAction {
    /// Wait.
    Wait,
    /// Count, do not wait.
    Arrive,
    /// Wait; the predicate of all threads combined by and.
    And,
    /// By or.
    Or,
    /// Wait; the number of threads whose predicate holds.
    Count,
}

/// A barrier instruction.
#[derive(Clone, Debug)]
pub struct BarrierSite {
    /// What happens.
    pub action: BarrierAction,
    /// Row of the barrier's number.
    pub index: u32,
    /// Row of the number of threads.
    pub threads: Option<u32>,
    /// Predicate of a reduction and whether it is negated.
    pub predicate: (u32, bool),
    /// Where a reduction's result goes.
    pub result: u32,
}

/// Interned constant rows.
#[derive(Clone, Default)]
pub struct Constants {
    /// Row offsets by width and value.
    rows: Map<(bool, u64), u32>,
    bytes: u32,
    image: Lines,
}

impl Constants {
    /// Operand of the row that holds `value` in every lane.
    pub fn row(&mut self, value: u64, wide: bool) -> u32 {
        let value = if wide { value } else { value & 0xffff_ffff };
        let next = self.bytes;
        let at = *self.rows.entry((wide, value)).or_insert(next);
        if at == next {
            self.bytes += if wide { ROW64 } else { ROW32 };
        }
        at | CONSTANT
    }

    /// Writes every row; must precede the first launch.
    pub fn finish(&mut self) {
        self.image = Lines::new(self.bytes as usize);
        let start = self.image.start();
        for ((wide, value), at) in &self.rows {
            for lane in 0..LANES {
                // SAFETY: the image holds all rows.
                unsafe {
                    let row = start.add(*at as usize);
                    if *wide {
                        *row.cast::<u64>().add(lane) = *value;
                    } else {
                        *row.cast::<u32>().add(lane) = *value as u32;
                    }
                }
            }
        }
    }

    /// First byte of the rows.
    pub fn start(&self) -> *mut u8 {
        self.image.start_shared().cast_mut()
    }
}

/// A translated kernel with every function that it can call.
#[derive(Clone)]
pub struct Code {
    /// All instructions.
    pub insts: Vec<Inst>,
    /// Operand lists of vector instructions and branch tables.
    pub lists: Vec<u32>,
    /// Constant rows.
    pub constants: Constants,
    /// Functions; the kernel is the first.
    pub functions: Vec<FunctionLayout>,
    /// Calls.
    pub calls: Vec<CallSite>,
    /// Barriers.
    pub barriers: Vec<BarrierSite>,
    /// Shapes of matrix multiplications.
    pub shapes: Vec<Shape>,
    /// Statically declared shared memory in bytes.
    pub shared: u32,
    /// Local memory of one thread in bytes.
    pub local: u32,
}

/// Special registers that live in rows of 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    LaneId,
    WarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    CtaidX,
    CtaidY,
    CtaidZ,
    NtidX,
    NtidY,
    NtidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    NwarpId,
    SmId,
    NsmId,
    DynamicShared,
    TotalShared,
    Last,
}

impl Special {
    /// The register a name and component stand for.
    pub fn from_name(name: &str, component: Option<&str>) -> Option<Self> {
        use Special::*;
        let pick = |x, y, z| match component? {
            "x" => Some(x),
            "y" => Some(y),
            "z" => Some(z),
            _ => None,
        };
        match (name, component) {
            ("%tid", _) => pick(TidX, TidY, TidZ),
            ("%ntid", _) => pick(NtidX, NtidY, NtidZ),
            // Without clusters every block is the only one of its own.
            ("%ctaid" | "%clusterid", _) => pick(CtaidX, CtaidY, CtaidZ),
            ("%nctaid" | "%nclusterid", _) => pick(NctaidX, NctaidY, NctaidZ),
            ("%laneid", None) => Some(LaneId),
            ("%warpid", None) => Some(WarpId),
            ("%nwarpid", None) => Some(NwarpId),
            ("%smid", None) => Some(SmId),
            ("%nsmid", None) => Some(NsmId),
            ("%lanemask_eq", None) => Some(LaneMaskEq),
            ("%lanemask_le", None) => Some(LaneMaskLe),
            ("%lanemask_lt", None) => Some(LaneMaskLt),
            ("%lanemask_ge", None) => Some(LaneMaskGe),
            ("%lanemask_gt", None) => Some(LaneMaskGt),
            ("%dynamic_smem_size", None) => Some(DynamicShared),
            ("%total_smem_size", None) => Some(TotalShared),
            _ => None,
        }
    }
}

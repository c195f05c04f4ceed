// SPDX-License-Identifier: Apache-2.0
//! The typed syntax tree of a PTX module; names borrow from the text.

use crate::place::Place;

/// Fundamental types of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Scalar {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    Pred,
}

impl Scalar {
    /// The type a dot word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "pred" => Self::Pred,
            _ => return None,
        })
    }

    /// Size in bytes; a predicate counts as one.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B8 | Self::U8 | Self::S8 | Self::Pred => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 | Self::Tf32 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// True for `.s8` to `.s64`.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// True for the floating types, packed ones included.
    pub fn is_float(self) -> bool {
        use Scalar::*;
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F64)
    }
}

/// State spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

impl Space {
    /// The space a dot word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "global" => Self::Global,
            "const" => Self::Const,
            "shared" | "shared::cta" => Self::Shared,
            "local" => Self::Local,
            "param" | "param::entry" | "param::func" => Self::Param,
            _ => return None,
        })
    }
}

/// Who may see a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Linkage {
    /// This module only.
    #[default]
    Internal,
    /// `.visible`.
    Visible,
    /// `.extern`: defined elsewhere.
    Extern,
    /// `.weak` or `.common`.
    Weak,
}

/// One value of an initialiser.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial<'a> {
    /// An integer, wrapped to the element type.
    Integer(u64),
    /// Bits of a single.
    Single(u32),
    /// Bits of a double.
    Double(u64),
    /// Address of a symbol plus an offset; true when written `generic(symbol)`.
    Symbol(&'a str, i64, bool),
    /// A nested list.
    List(Vec<Initial<'a>>),
}

/// A variable of any space but registers.
#[derive(Clone, Debug)]
pub struct Variable<'a> {
    /// Name.
    pub name: &'a str,
    /// State space.
    pub space: Space,
    /// Visibility.
    pub linkage: Linkage,
    /// Alignment in bytes.
    pub align: u32,
    /// Element type.
    pub scalar: Scalar,
    /// Array dimensions, outermost first; a missing size is 0.
    pub dimensions: Vec<u64>,
    /// Vector length of one element, 1 without `.v2` or `.v4`.
    pub vector: u32,
    /// Initial values, empty for zeros.
    pub initial: Vec<Initial<'a>>,
    /// True with `.attribute(.managed)`.
    pub managed: bool,
    /// Where it is declared.
    pub place: Place,
}

impl Variable<'_> {
    /// Size in bytes; `None` when the product overflows or exceeds 2^40.
    pub fn bytes(&self) -> Option<u64> {
        let element = u64::from(self.scalar.bytes() * self.vector);
        let mut total = element;
        for dimension in &self.dimensions {
            total = total.checked_mul(*dimension)?;
        }
        (total <= 1 << 40).then_some(total)
    }
}

/// A kernel or device function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Name.
    pub name: &'a str,
    /// True for `.entry`.
    pub is_entry: bool,
    /// Visibility.
    pub linkage: Linkage,
    /// Return values of a device function.
    pub returns: Vec<Formal<'a>>,
    /// Parameters.
    pub parameters: Vec<Formal<'a>>,
    /// `.maxntid` or `.reqntid`, product of its values; 0 without.
    pub max_threads: u32,
    /// `.maxnreg`; 0 without.
    pub max_registers: u32,
    /// `.reqntid` values; zeros without.
    pub required_block: [u32; 3],
    /// Body; `None` for a declaration.
    pub body: Option<Vec<Statement<'a>>>,
    /// Where it begins.
    pub place: Place,
}

/// A formal parameter: a `.param` variable or, in old code, a register.
#[derive(Clone, Debug)]
pub struct Formal<'a> {
    /// The variable; its space is `Param`, or `Generic` where it is a register.
    pub variable: Variable<'a>,
    /// True for a `.reg` parameter.
    pub is_register: bool,
}

/// One statement of a body.
#[derive(Clone, Debug)]
pub enum Statement<'a> {
    /// `name:`
    Label(&'a str, Place),
    /// `.reg .type name, name<count>`: type, vector length, names with counts.
    Registers(Scalar, u32, Vec<(&'a str, Option<u32>)>),
    /// A variable of shared, local, param, global or const space.
    Variable(Variable<'a>),
    /// `{ … }`
    Block(Vec<Statement<'a>>),
    /// `name: .branchtargets a, b;`
    BranchTargets(&'a str, Vec<&'a str>),
    /// `name: .callprototype (returns) _ (parameters)`
    Prototype(&'a str),
    /// An instruction.
    Instruction(Instruction<'a>),
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    /// Guard predicate and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    /// Opcode without modifiers.
    pub opcode: &'a str,
    /// Dot words after the opcode.
    pub modifiers: Vec<&'a str>,
    /// Operands, in order.
    pub operands: Vec<Operand<'a>>,
    /// Where it begins.
    pub place: Place,
}

/// One operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'a> {
    /// Register, symbol, label or `_`.
    Name(&'a str),
    /// Special register with component, such as `%tid.x`.
    Component(&'a str, &'a str),
    /// `!p`
    Not(&'a str),
    /// Integer literal after signs and constant folding.
    Integer(u64),
    /// Bits of a single.
    Single(u32),
    /// Bits of a double.
    Double(u64),
    /// `symbol+offset` or `symbol[offset]`.
    Offset(&'a str, i64),
    /// `[base+offset]`; a base that is `None` means an absolute address.
    Address(Option<&'a str>, i64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `(a, b)` of a call.
    List(Vec<Operand<'a>>),
    /// `d|p`
    Pair(&'a str, &'a str),
}

/// A whole module.
#[derive(Clone, Debug, Default)]
pub struct Source<'a> {
    /// `.version` as (major, minor).
    pub version: (u32, u32),
    /// First word of `.target`.
    pub target: &'a str,
    /// Module-scope variables.
    pub variables: Vec<Variable<'a>>,
    /// Functions, in order.
    pub functions: Vec<Function<'a>>,
}

// SPDX-License-Identifier: Apache-2.0
//! The machine code of an exported name: a jump to the provider's function, or a call of the refusal with the name.

/// The processors that the code is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    /// `x86_64`.
    X86,
    /// `aarch64`.
    Arm,
}

/// How far, in bytes, one aarch64 instruction reaches (`adr` and a literal's `ldr`: 21 bits, signed).
const ARM_REACH: i64 = 1 << 20;

impl Processor {
    /// The one that this program was built for.
    pub(crate) const HERE: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm
    } else {
        Self::X86
    };

    /// `e_machine`.
    pub(crate) fn machine(self) -> u16 {
        match self {
            Self::X86 => object::elf::EM_X86_64,
            Self::Arm => object::elf::EM_AARCH64,
        }
    }

    /// The relocation that writes a symbol's address into a slot.
    pub(crate) fn address_of_symbol(self) -> u32 {
        match self {
            Self::X86 => object::elf::R_X86_64_GLOB_DAT,
            Self::Arm => object::elf::R_AARCH64_GLOB_DAT,
        }
    }

    /// Bytes of a forward.
    pub(crate) fn forward_size(self) -> usize {
        8
    }

    /// Bytes of an answer.
    pub(crate) fn answer_size(self) -> usize {
        match self {
            Self::X86 => 8,
            Self::Arm => 12,
        }
    }

    /// Answers a number, as wide as a pointer.
    pub(crate) fn answer(self, number: i32) -> Vec<u8> {
        let bits = number.cast_unsigned();
        match self {
            Self::X86 => {
                // mov rax, number (sign-extended); ret
                let mut code = vec![0x48, 0xc7, 0xc0];
                code.extend(bits.to_le_bytes());
                code.push(0xc3);
                code
            }
            Self::Arm => {
                // movz w0, #low; movk w0, #high, lsl 16; ret
                let words = [
                    0x5280_0000 | (bits & 0xffff) << 5,
                    0x72a0_0000 | (bits >> 16) << 5,
                    0xd65f_03c0,
                ];
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        }
    }

    /// Bytes of a refusal.
    pub(crate) fn refusal_size(self) -> usize {
        match self {
            Self::X86 => 32,
            Self::Arm => 24,
        }
    }

    /// A jump to the address in the slot at `slot`, for code that lies at `at`. No register of an argument changes.
    pub(crate) fn forward(self, at: u64, slot: u64) -> Vec<u8> {
        match self {
            Self::X86 => {
                let mut code = jump_by_slot(at, slot);
                code.extend([0xcc; 2]);
                code
            }
            Self::Arm => {
                // ldr x17, slot; br x17
                [literal(17, at, slot), 0xd61f_0220]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect()
            }
        }
    }

    /// Calls the refusal whose address is in the slot at `slot`, with the addresses of the function's name and of its
    /// library's, and the code to answer.
    pub(crate) fn refusal(self, at: u64, slot: u64, name: u64, library: u64, code: i32) -> Vec<u8> {
        let code = code.cast_unsigned();
        match self {
            Self::X86 => {
                // lea rdi, [name]; lea rsi, [library]; mov edx, code; jmp [slot]
                let mut bytes = vec![0x48, 0x8d, 0x3d];
                bytes.extend(distance(at + 7, name));
                bytes.extend([0x48, 0x8d, 0x35]);
                bytes.extend(distance(at + 14, library));
                bytes.push(0xba);
                bytes.extend(code.to_le_bytes());
                bytes.extend(jump_by_slot(at + 19, slot));
                bytes.resize(self.refusal_size(), 0xcc);
                bytes
            }
            Self::Arm => {
                // adr x0, name; adr x1, library; movz w2, #low; movk w2, #high, lsl 16; ldr x17, slot; br x17
                let words = [
                    address(0, at, name),
                    address(1, at + 4, library),
                    0x5280_0002 | (code & 0xffff) << 5,
                    0x72a0_0002 | (code >> 16) << 5,
                    literal(17, at + 16, slot),
                    0xd61f_0220,
                ];
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        }
    }
}

/// `jmp [slot]`: 6 bytes.
fn jump_by_slot(at: u64, slot: u64) -> Vec<u8> {
    let mut code = vec![0xff, 0x25];
    code.extend(distance(at + 6, slot));
    code
}

/// From the end of an instruction to an address.
///
/// # Panics
/// Where the two lie 2 GiB apart: no file of names is that large.
fn distance(from: u64, to: u64) -> [u8; 4] {
    let distance = to.wrapping_sub(from).cast_signed();
    i32::try_from(distance).expect("one small file").to_le_bytes()
}

/// `ldr xN, to`.
fn literal(register: u32, at: u64, to: u64) -> u32 {
    let distance = near(at, to);
    0x5800_0000 | ((distance >> 2).cast_unsigned() as u32 & 0x7_ffff) << 5 | register
}

/// `adr xN, to`.
fn address(register: u32, at: u64, to: u64) -> u32 {
    let distance = near(at, to).cast_unsigned() as u32;
    0x1000_0000 | (distance & 3) << 29 | (distance >> 2 & 0x7_ffff) << 5 | register
}

/// # Panics
/// Where the two lie a mebibyte apart: a file of names has a quarter of that.
fn near(at: u64, to: u64) -> i64 {
    let distance = to.wrapping_sub(at).cast_signed();
    assert!((-ARM_REACH..ARM_REACH).contains(&distance), "{distance} bytes apart");
    distance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(code: &[u8]) -> Vec<u32> {
        code.chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("four")))
            .collect()
    }

    /// As an assembler writes them.
    #[test]
    fn aarch64_is_encoded_as_an_assembler_does() {
        let arm = Processor::Arm;
        // ldr x17, #0x100; br x17
        assert_eq!(words(&arm.forward(0x1000, 0x1100)), [0x5800_0811, 0xd61f_0220]);
        // ldr x17, #-8; br x17
        assert_eq!(words(&arm.forward(0x1008, 0x1000)), [0x58ff_ffd1, 0xd61f_0220]);
        // adr x0, #0x103; adr x1, #-4; movz w2, #801; movk w2, #0, lsl #16; ldr x17, #0x20; br x17
        let code = arm.refusal(0x2000, 0x2030, 0x2103, 0x2000, 801);
        assert_eq!(code.len(), arm.refusal_size());
        assert_eq!(
            words(&code),
            [
                0x7000_0800,
                0x10ff_ffe1,
                0x5280_6422,
                0x72a0_0002,
                0x5800_0111,
                0xd61f_0220
            ]
        );
        // movz w0, #0xfffe; movk w0, #0xffff, lsl #16; ret
        assert_eq!(words(&arm.answer(-2)), [0x529f_ffc0, 0x72bf_ffe0, 0xd65f_03c0]);
        assert_eq!(arm.answer(-2).len(), arm.answer_size());
    }

    #[test]
    fn sizes_are_as_promised() {
        let x86 = Processor::X86;
        assert_eq!(x86.forward(0, 0x1000).len(), x86.forward_size());
        assert_eq!(x86.refusal(0, 0x1000, 0x2000, 0x3000, 801).len(), x86.refusal_size());
        assert_eq!(x86.answer(801).len(), x86.answer_size());
    }
}

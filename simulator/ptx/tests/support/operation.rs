// SPDX-License-Identifier: Apache-2.0
//! Runs one instruction, or a few, on many operands at once.

use super::{HEADER, Memory, run};

/// Runs `instruction` for each triple and returns its results as 64 bits.
///
/// The text may read `%a64`, `%a32`, `%a16` (and `b`, `c`), which are the low bits of the operands, and predicates
/// `%pa` (`a` is odd), `%pb`, `%pc`. It writes one of `%d64`, `%d32`, `%d16` or `%pd`; a smaller result is extended
/// with zeros.
pub fn results(instruction: &str, operands: &[(u64, u64, u64)]) -> Vec<u64> {
    let memory = Memory::default();
    let module = memory.load(&text(instruction));
    let flat: Vec<u64> = operands.iter().flat_map(|(a, b, c)| [*a, *b, *c]).collect();
    let (from, to) = (memory.upload(&flat), memory.allocate(8 * operands.len()));
    // 48 threads a block: a full warp and half of one, so that both ways through every handler are taken.
    let blocks = operands.len().div_ceil(48) as u32;
    let values = [to.into(), from.into(), (operands.len() as u32).into()];
    run(&memory, &module, "operation", [blocks, 1, 1], [48, 1, 1], &values, 1)
        .unwrap_or_else(|fault| panic!("{instruction}: {fault}"));
    memory.download(to, operands.len())
}

fn text(instruction: &str) -> String {
    let store = if instruction.contains("%d32") {
        "cvt.u64.u32 %d64, %d32;"
    } else if instruction.contains("%d16") {
        "cvt.u64.u16 %d64, %d16;"
    } else if instruction.contains("%pd") {
        "selp.u64 %d64, 1, 0, %pd;"
    } else {
        ""
    };
    format!(
        "{HEADER}
        .visible .entry operation(.param .u64 to, .param .u64 from, .param .u32 count)
        {{
            .reg .b64 %a64, %b64, %c64, %d64, %e64, %place, %at;
            .reg .b32 %a32, %b32, %c32, %d32, %e32, %i, %n, %block, %size;
            .reg .b16 %a16, %b16, %c16, %d16, %e16;
            .reg .pred %pa, %pb, %pc, %pd, %pe, %outside;
            mov.u32 %i, %tid.x;
            mov.u32 %block, %ctaid.x;
            mov.u32 %size, %ntid.x;
            mad.lo.u32 %i, %block, %size, %i;
            ld.param.u32 %n, [count];
            setp.ge.u32 %outside, %i, %n;
            @%outside bra END;
            ld.param.u64 %place, [from];
            mad.wide.u32 %at, %i, 24, %place;
            ld.global.u64 %a64, [%at];
            ld.global.u64 %b64, [%at+8];
            ld.global.u64 %c64, [%at+16];
            cvt.u32.u64 %a32, %a64;
            cvt.u32.u64 %b32, %b64;
            cvt.u32.u64 %c32, %c64;
            cvt.u16.u64 %a16, %a64;
            cvt.u16.u64 %b16, %b64;
            cvt.u16.u64 %c16, %c64;
            and.b32 %e32, %a32, 1;
            setp.ne.u32 %pa, %e32, 0;
            and.b32 %e32, %b32, 1;
            setp.ne.u32 %pb, %e32, 0;
            and.b32 %e32, %c32, 1;
            setp.ne.u32 %pc, %e32, 0;
            mov.u64 %d64, 0;
            {instruction}
            {store}
            ld.param.u64 %place, [to];
            mad.wide.u32 %at, %i, 8, %place;
            st.global.u64 [%at], %d64;
        END:
            ret;
        }}"
    )
}

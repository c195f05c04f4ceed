// SPDX-License-Identifier: Apache-2.0
//! Matrices of halves between registers and shared memory: `stmatrix`, and its twin `ldmatrix`.

use crate::*;

/// Stores `count` matrices, whose registers hold `lane * 2 | (lane * 2 + 1) << 16` and 64 more for each matrix, by
/// `.xN` and `more`, and copies the tile to `d`.
fn storing(count: usize, more: &str, address: &str) -> String {
    let registers: Vec<String> = (0..count).map(|number| format!("%r{}", 10 + number)).collect();
    format!(
        "{HEADER}
        .visible .entry k(.param .u64 d)
        {{
            .shared .align 16 .b8 tile[512];
            .reg .b64 %d, %at;
            .reg .b32 %r<30>;
            ld.param.u64 %d, [d];
            mov.u32 %r1, %laneid;
            mad.lo.u32 %r2, %r1, 0x20002, 0x10000;
            add.u32 %r10, %r2, 0;
            add.u32 %r11, %r2, 0x400040;
            add.u32 %r12, %r2, 0x800080;
            add.u32 %r13, %r2, 0xc000c0;
            mov.u32 %r3, tile;
            mad.lo.u32 %r4, %r1, 16, %r3;
            cvt.u64.u32 %at, %r4;
            cvta.shared.u64 %at, %at;
            stmatrix.sync.aligned.m8n8.x{count}{more}.b16 [{address}], {{{}}};
            bar.warp.sync -1;
            mul.lo.u32 %r5, %r1, 16;
            cvt.u64.u32 %at, %r5;
            add.u64 %d, %d, %at;
            ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r4];
            st.global.v4.u32 [%d], {{%r20, %r21, %r22, %r23}};
            ret;
        }}",
        registers.join(", ")
    )
}

#[test]
fn stored_matrices_lie_row_by_row_and_transposed_column_by_column() {
    for count in [1, 2, 4] {
        for (more, address) in [
            (".shared", "%r4"),
            (".trans.shared", "%r4"),
            (".trans", "%at"),
            ("", "%at"),
        ] {
            let memory = Memory::default();
            let module = memory.load(&storing(count, more, address));
            let d = memory.allocate(512);
            run(&memory, &module, "k", [1, 1, 1], [32, 1, 1], &[d.into()], 1).unwrap();
            // A register of lane l holds elements 2 l and 2 l + 1 of its matrix, counted along the rows.
            let expected: Vec<u16> = (0..count * 64)
                .map(|place| {
                    let (row, column) = (place / 8 % 8, place % 8);
                    let element = if more.contains("trans") {
                        column * 8 + row
                    } else {
                        row * 8 + column
                    };
                    (place / 64 * 64 + element) as u16
                })
                .collect();
            assert_eq!(memory.download::<u16>(d, count * 64), expected, "x{count}{more}");
        }
    }
}

#[test]
fn a_row_off_its_alignment_or_outside_fails() {
    let memory = Memory::default();
    for (address, fault) in [("%r4+8", "Misaligned"), ("%r4+4096", "Illegal")] {
        let module = memory.load(&storing(4, ".shared", address));
        let d = memory.allocate(512);
        let failed = run(&memory, &module, "k", [1, 1, 1], [32, 1, 1], &[d.into()], 1);
        let said = format!("{:?}", failed.expect_err(address));
        assert!(said.contains(fault), "{address}: {said}");
    }
}

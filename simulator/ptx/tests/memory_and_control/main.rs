// SPDX-License-Identifier: Apache-2.0
//! State spaces, atomics, barriers, branches, calls and matrix instructions, from small hand-written texts.

mod control;
mod matrices;
#[path = "../support/mod.rs"]
mod support;

use partage_ptx::{FaultKind, Image, Launch, Loader, Module, join};
use support::{HEADER, Memory, arguments, run};

/// A kernel `k` with one pointer, which is in `%to`, and a body that sees `%i` (the thread) and `%own` (its place).
fn kernel(body: &str) -> String {
    format!(
        "{HEADER}
        .visible .entry k(.param .u64 to)
        {{
            .reg .b64 %to, %own, %rd<20>;
            .reg .b32 %i, %r<40>;
            .reg .f32 %f<20>;
            .reg .f64 %fd<8>;
            .reg .b16 %h<8>;
            .reg .pred %p<8>;
            ld.param.u64 %to, [to];
            cvta.to.global.u64 %to, %to;
            mov.u32 %i, %tid.x;
            mad.wide.u32 %own, %i, 4, %to;
            {body}
            ret;
        }}"
    )
}

/// Runs [`kernel`] with one block and returns the first words of the buffer.
fn words(body: &str, threads: u32, count: usize) -> Vec<u32> {
    let memory = Memory::default();
    let module = memory.load(&kernel(body));
    let to = memory.allocate(4096);
    run(&memory, &module, "k", [1, 1, 1], [threads, 1, 1], &[to.into()], 1)
        .unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    memory.download(to, count)
}

#[test]
fn every_space_is_reached_by_its_own_and_by_generic_addresses() {
    let body = "
        .shared .align 8 .b8 pool[1024];
        .local .align 8 .b8 own[64];
        mov.u32 %r1, pool;
        mad.lo.u32 %r1, %i, 8, %r1;
        add.u32 %r2, %i, 100;
        st.shared.u32 [%r1], %r2;
        cvt.u64.u32 %rd1, %r1;
        cvta.shared.u64 %rd1, %rd1;
        ld.u32 %r3, [%rd1];
        mov.u64 %rd2, own;
        st.local.u32 [%rd2+4], %r3;
        cvta.local.u64 %rd3, %rd2;
        ld.u32 %r4, [%rd3+4];
        isspacep.shared %p1, %rd1;
        isspacep.local %p2, %rd1;
        isspacep.global %p3, %to;
        selp.u32 %r5, 1000, 0, %p1;
        selp.u32 %r6, 0, 1000, %p2;
        selp.u32 %r7, 1000, 0, %p3;
        add.u32 %r4, %r4, %r5;
        add.u32 %r4, %r4, %r6;
        add.u32 %r4, %r4, %r7;
        cvta.to.shared.u64 %rd4, %rd1;
        st.shared.u32 [%rd4+4], %r4;
        ld.shared.u32 %r8, [%r1+4];
        st.global.u32 [%own], %r8;";
    let expected: Vec<u32> = (0..40).map(|thread| 3100 + thread).collect();
    assert_eq!(words(body, 40, 40), expected);
}

#[test]
fn policies_and_hints_about_caches_change_nothing() {
    let body = "
        createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0;
        createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd2;
        createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd3, [%to], 128, 256;
        createpolicy.cvt.L2.b64 %rd4, %rd1;
        st.global.L1::no_allocate.L2::cache_hint.v2.b32 [%to], {5, 7}, %rd1;
        mov.u32 %r1, 0; mov.u32 %r2, 0;
        @%p1 ld.global.L1::evict_first.L2::cache_hint.v2.b32 {%r1, %r2}, [%to], %rd1;
        setp.eq.u32 %p1, 0, 0;
        @%p1 ld.global.L1::evict_last.L2::cache_hint.L2::128B.v2.b32 {%r1, %r2}, [%to+0], %rd2;
        ld.global.nc.L1::no_allocate.L2::256B.b32 %r3, [%to];
        atom.global.add.L2::cache_hint.u32 %r4, [%to], 10, %rd3;
        atom.global.cas.L2::cache_hint.b32 %r5, [%to], 15, 16, %rd4;
        red.global.max.L2::cache_hint.u32 [%to+4], 9, %rd4;
        st.global.v2.u32 [%to+8], {%r1, %r2};
        st.global.v2.u32 [%to+16], {%r3, %r4};
        st.global.u32 [%to+24], %r5;
        .shared .align 16 .b8 pool[16];
        mov.u32 %r6, pool;
        cp.async.cg.shared.global.L2::cache_hint [%r6], [%to], 16, %rd1;
        cp.async.wait_all;
        ld.shared.u32 %r7, [%r6+12];
        st.global.u32 [%to+28], %r7;";
    assert_eq!(words(body, 1, 8), [16, 9, 5, 7, 5, 5, 15, 7]);
}

#[test]
fn a_hint_without_its_policy_is_no_ptx() {
    let text = kernel("ld.global.L2::cache_hint.u32 %r1, [%to];");
    let error = Module::from_ptx(&text).map(|_| ()).unwrap_err();
    assert!(error.reason.contains("policy"), "{error}");
}

#[test]
fn vectors_and_narrow_elements_are_extended() {
    let body = "
        st.global.u32 [%to], 0x8091a2b3;
        st.global.v2.u16 [%to+4], {0x1122, 0xff44};
        ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%to];
        ld.global.s8 %r1, [%to+3];
        ld.global.s16 %rd1, [%to+6];
        ld.global.u16 %r2, [%to+6];
        cvt.u32.u16 %r3, %h2;
        st.global.v4.u32 [%to+16], {%r1, %r2, %r3, 5};
        st.global.u64 [%to+32], %rd1;
        st.global.u8 [%to+40], %r1;";
    let found = words(body, 1, 11);
    assert_eq!(found[1], 0xff44_1122);
    assert_eq!(found[4..10], [0xffff_ff80, 0xff44, 0xa2, 5, 0xffff_ff44, 0xffff_ffff]);
    assert_eq!(found[10], 0x80);
}

#[test]
fn atomics_return_the_old_value_and_keep_every_update() {
    let cases: [(&str, &str, u32); 10] = [
        ("0", "atom.global.add.u32 %r1, [%to], 3;", 3 * 64),
        ("0", "red.global.add.s32 [%to], -1;", (-64i32) as u32),
        ("50", "atom.global.max.s32 %r1, [%to], %i;", 63),
        ("50", "atom.min.u32 %r1, [%to], %i;", 0),
        ("0", "atom.global.inc.u32 %r1, [%to], 9;", 4),
        ("0", "atom.global.dec.u32 %r1, [%to], 9;", 6),
        ("0", "shl.b32 %r2, 1, %i; red.global.or.b32 [%to], %r2;", u32::MAX),
        ("-1", "atom.global.and.b32 %r1, [%to], 12;", 12),
        ("7", "red.global.xor.b32 [%to], 5;", 7),
        (
            "0",
            "cvt.rn.f32.u32 %f1, %i; red.global.add.f32 [%to], %f1;",
            2016f32.to_bits(),
        ),
    ];
    for (first, instruction, expected) in cases {
        let body = format!(
            "setp.eq.u32 %p1, %i, 0;
            @%p1 st.global.u32 [%to], {first};
            bar.sync 0;
            {instruction}"
        );

        assert_eq!(words(&body, 64, 1), [expected], "{instruction}");
    }
    let body = "
        .shared .align 8 .u64 sum;
        .shared .align 4 .u32 last;
        setp.eq.u32 %p1, %i, 0;
        @%p1 st.shared.u64 [sum], 5;
        @%p1 st.shared.u32 [last], 77;
        bar.sync 0;
        cvt.u64.u32 %rd1, %i;
        add.u64 %rd1, %rd1, 1;
        atom.shared.add.u64 %rd2, [sum], %rd1;
        atom.shared.exch.b32 %r1, [last], %i;
        atom.shared.cas.b32 %r2, [last], %i, 1234;
        bar.sync 0;
        ld.shared.u64 %rd3, [sum];
        ld.shared.u32 %r3, [last];
        @%p1 st.global.u64 [%to], %rd3;
        @%p1 st.global.u32 [%to+8], %r3;
        @%p1 st.global.u32 [%to+12], %r1;
        setp.eq.u64 %p2, %rd2, 5;
        @%p2 st.global.u32 [%to+16], %i;";
    assert_eq!(words(body, 32, 5), [5 + 528, 0, 1234, 77, 0]);
}

#[test]
fn half_precision_atomics_touch_their_half_only() {
    let body = "
        st.global.u32 [%to], 0x3c003c00;
        mov.b16 %h1, 0x4000;
        atom.global.add.noftz.f16 %h2, [%to+2], %h1;
        mov.b32 %r1, 0x3c004000;
        red.global.add.noftz.f16x2 [%to], %r1;
        atom.global.cas.b16 %h3, [%to], 0x4200, 0x1234;";
    assert_eq!(words(body, 1, 1), [0x4400_1234]);
}

#[test]
fn barriers_combine_predicates_and_count_partial_blocks() {
    let body = "
        setp.lt.u32 %p1, %i, 50;
        bar.red.popc.u32 %r1, 0, %p1;
        bar.red.and.pred %p2, 0, %p1;
        bar.red.or.pred %p3, 1, !%p1;
        selp.u32 %r2, 100, 0, %p2;
        selp.u32 %r3, 1000, 0, %p3;
        add.u32 %r1, %r1, %r2;
        add.u32 %r1, %r1, %r3;
        st.global.u32 [%own], %r1;";
    assert_eq!(words(body, 70, 70), [1050; 70]);
    // Half of the threads leave before the barrier, and one warp only arrives.
    let body = "
        .shared .align 4 .u32 flag;
        setp.ge.u32 %p1, %i, 64;
        @%p1 exit;
        setp.ge.u32 %p2, %i, 32;
        @%p2 bra WRITER;
        barrier.sync 3, 64;
        ld.shared.u32 %r1, [flag];
        st.global.u32 [%own], %r1;
        ret;
    WRITER:
        st.shared.u32 [flag], 9;
        barrier.arrive 3, 64;";
    assert_eq!(words(body, 100, 33), [&[9u32; 32][..], &[0]].concat());
}

/// A warp that multiplies matrices: a (16 by 16 halves) is given by rows, b (16 by 8) by columns, both in the places
/// of the fragments.
fn multiplication() -> String {
    format!(
        "{HEADER}
        .visible .entry k(.param .u64 d, .param .u64 a, .param .u64 b)
        {{
            .shared .align 16 .b8 tile[512];
            .reg .b64 %d, %a, %b, %rd<6>;
            .reg .b32 %r<30>;
            .reg .f32 %f<9>;
            ld.param.u64 %d, [d]; ld.param.u64 %a, [a]; ld.param.u64 %b, [b];
            mov.u32 %r1, %laneid;
            // Sixteen bytes a lane bring the tile into shared memory.
            mul.lo.u32 %r2, %r1, 16;
            mov.u32 %r3, tile;
            add.u32 %r4, %r3, %r2;
            cvt.u64.u32 %rd1, %r2;
            add.u64 %rd1, %rd1, %a;
            cp.async.cg.shared.global [%r4], [%rd1], 16;
            cp.async.commit_group;
            cp.async.wait_group 0;
            bar.warp.sync -1;
            // Lanes name rows: matrices 0 to 3 are the quarters upper left, lower left, upper right, lower right.
            and.b32 %r5, %r1, 15;
            shr.u32 %r6, %r1, 4;
            mul.lo.u32 %r5, %r5, 32;
            mad.lo.u32 %r5, %r6, 16, %r5;
            add.u32 %r5, %r5, %r3;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r5];
            shr.u32 %r7, %r1, 2;
            and.b32 %r8, %r1, 3;
            mul.lo.u32 %r9, %r7, 32;
            mad.lo.u32 %r9, %r8, 4, %r9;
            cvt.u64.u32 %rd2, %r9;
            add.u64 %rd2, %rd2, %b;
            ld.global.u32 %r14, [%rd2];
            ld.global.u32 %r15, [%rd2+16];
            mov.f32 %f1, 0f3F000000;
            mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
                {{%f5, %f6, %f7, %f8}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%f1, %f1, %f1, %f1}};
            mul.lo.u32 %r16, %r7, 32;
            mad.lo.u32 %r16, %r8, 8, %r16;
            cvt.u64.u32 %rd3, %r16;
            add.u64 %rd3, %rd3, %d;
            st.global.v2.f32 [%rd3], {{%f5, %f6}};
            st.global.v2.f32 [%rd3+256], {{%f7, %f8}};
            ret;
        }}"
    )
}

/// A small whole number (0 to 15) as a half.
fn half(value: usize) -> u16 {
    if value == 0 {
        return 0;
    }
    let power = value.ilog2();
    ((15 + power) << 10) as u16 | (((value << 10) >> power) as u16 & 0x3ff)
}

#[test]
fn matrices_are_multiplied_across_a_warp() {
    let a: Vec<usize> = (0..256).map(|index| (index * 7 + index / 16) % 13).collect();
    let b: Vec<usize> = (0..128).map(|index| (index * 5 + index / 8) % 11).collect();
    let memory = Memory::default();
    let module = memory.load(&multiplication());
    let at_a = memory.upload(&a.iter().map(|value| half(*value)).collect::<Vec<u16>>());
    let by_columns: Vec<u16> = (0..128).map(|index| half(b[index % 16 * 8 + index / 16])).collect();
    let (at_b, d) = (memory.upload(&by_columns), memory.allocate(512));
    run(
        &memory,
        &module,
        "k",
        [1, 1, 1],
        [32, 1, 1],
        &[d.into(), at_a.into(), at_b.into()],
        1,
    )
    .unwrap();
    let expected: Vec<f32> = (0..128)
        .map(|place| {
            let (row, column) = (place / 8, place % 8);
            0.5 + (0..16).map(|k| a[row * 16 + k] * b[k * 8 + column]).sum::<usize>() as f32
        })
        .collect();
    assert_eq!(memory.download::<f32>(d, 128), expected);
}

#[test]
fn texts_are_linked_by_extern_names() {
    let first = format!(
        "{HEADER}
        .extern .func (.param .b32 out) triple(.param .b32 in);
        .extern .global .align 4 .u32 offset;
        {}",
        kernel(
            "{ .param .b32 given; .param .b32 taken;
            st.param.b32 [given], %i; call (taken), triple, (given); ld.param.b32 %r1, [taken]; }
            ld.global.u32 %r2, [offset];
            add.u32 %r1, %r1, %r2;
            st.global.u32 [%own], %r1;"
        )
        .replace(HEADER, "")
    );
    let second = format!(
        "{HEADER}
        .visible .global .align 4 .u32 offset = 1000;
        .visible .func (.param .b32 out) triple(.param .b32 in)
        {{ .reg .b32 %r1; ld.param.b32 %r1, [in]; mul.lo.u32 %r1, %r1, 3; st.param.b32 [out], %r1; ret; }}"
    );
    assert!(Module::from_ptx(&first).unwrap_err().reason.contains("not declared"));
    let loader = Loader {
        arch: 90,
        newest_ptx: (9, 0),
        takes_machine_code: false,
    };
    let image = join(&[first, second]);
    let chosen = loader.choose(&image).unwrap();
    assert!(matches!(&chosen, Image::Joined(texts) if texts.len() == 2));
    let mut module = loader.load(&[chosen]).unwrap();
    let memory = Memory::default();
    let (variable, to) = (memory.upload(&[1000u32]), memory.allocate(64));
    assert_eq!(module.image(0), 1000u32.to_le_bytes());
    module.place(&[variable]).unwrap();
    run(&memory, &module, "k", [1, 1, 1], [8, 1, 1], &[to.into()], 1).unwrap();
    assert_eq!(
        memory.download::<u32>(to, 8),
        (0..8).map(|thread| 1000 + 3 * thread).collect::<Vec<u32>>()
    );
}

#[test]
fn initialisers_hold_numbers_lists_and_addresses() {
    let text = format!(
        "{HEADER}
        .global .align 8 .u64 where[2] = {{numbers+8, numbers}};
        .global .align 4 .f32 numbers[2][3] = {{{{0f3F800000, 2.5}}, {{-1.0, 0f40000000, 3.0}}}};
        .const .align 2 .u16 small[4] = {{1, -1, 0x10, 1 << 4 | 2}};
        {}",
        kernel("").replace(HEADER, "")
    );
    let mut module = Module::from_ptx(&text).unwrap();
    let names: Vec<&str> = module
        .variables()
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    assert_eq!(names, ["where", "numbers", "small"]);
    module.place(&[0x1000, 0x2000, 0x3000]).unwrap();
    assert_eq!(
        module.image(0),
        [0x2008u64.to_le_bytes(), 0x2000u64.to_le_bytes()].concat()
    );
    let floats: Vec<u8> = [1.0f32, 2.5, 0.0, -1.0, 2.0, 3.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    assert_eq!(module.image(1), floats);
    assert_eq!(module.image(2), [1, 0, 255, 255, 16, 0, 18, 0]);
    assert!(module.variables()[2].is_constant);
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let memory = Memory::default();
    let text = kernel("").replace("(.param .u64 to)", "(.param .u64 to) .reqntid 32, 1, 1");
    let module = memory.load(&text);
    let kernel = module.kernel("k").unwrap();
    assert_eq!(kernel.max_threads(), 32);
    let parameters = arguments(&kernel, &[0u64.into()]);
    let fits = Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        dynamic_shared: 0,
        parameters: &parameters,
        stop: None,
    };
    assert!(kernel.run(&fits, &memory, 1).is_ok());
    for misfit in [
        Launch {
            block: [16, 1, 1],
            ..fits
        },
        Launch {
            grid: [0, 1, 1],
            ..fits
        },
        Launch {
            grid: [1, 1 << 17, 1],
            ..fits
        },
        Launch {
            block: [1, 64, 64],
            ..fits
        },
        Launch {
            parameters: &parameters[..4],
            ..fits
        },
        Launch {
            dynamic_shared: 2 << 20,
            ..fits
        },
    ] {
        assert!(
            matches!(
                kernel.run(&misfit, &memory, 1).unwrap_err().kind,
                FaultKind::BadLaunch(_)
            ),
            "{misfit:?}"
        );
    }
}

#[test]
fn kernels_without_addresses_are_translated_once() {
    let text = format!(
        "{HEADER}.global .u32 word = 7;\n\
         .visible .entry plain(.param .u64 to) {{ .reg .b64 %rd<2>; ld.param.u64 %rd1, [to]; \
         st.global.u32 [%rd1], 3; ret; }}\n\
         .visible .entry reads(.param .u64 to) {{ .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [to]; \
         ld.global.u32 %r1, [word]; st.global.u32 [%rd1], %r1; ret; }}"
    );
    let memory = Memory::default();
    let mut module = Module::from_ptx(&text).unwrap();
    let before = ["plain", "reads"].map(|name| module.kernel(name).unwrap());
    let (word, to) = (memory.upload(&[9u32]), memory.allocate(256));
    module.place(&[word]).unwrap();
    let after = ["plain", "reads"].map(|name| module.kernel(name).unwrap());
    let is_same = |at: usize| std::sync::Arc::ptr_eq(&before[at], &after[at]);
    assert_eq!((is_same(0), is_same(1)), (true, false));
    for (name, expected) in [("plain", 3), ("reads", 9)] {
        run(&memory, &module, name, [1, 1, 1], [1, 1, 1], &[to.into()], 1).unwrap();
        assert_eq!(memory.download::<u32>(to, 1), [expected], "{name}");
    }
}

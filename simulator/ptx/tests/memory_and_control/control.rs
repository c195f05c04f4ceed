// SPDX-License-Identifier: Apache-2.0
//! Branches, calls, and what lanes of a warp tell each other.

use super::*;

#[test]
fn indexed_branches_and_labels_in_blocks() {
    let body = "
        and.b32 %r1, %i, 3;
        TABLE: .branchtargets ZERO, ONE, TWO, TWO;
        brx.idx %r1, TABLE;
    ZERO:
        mov.u32 %r2, 10;
        bra DONE;
    ONE:
        mov.u32 %r2, 20;
        bra DONE;
    TWO:
        mov.u32 %r2, 30;
    DONE:
        {
            .reg .b32 %r2;
            mov.u32 %r2, 7;
            bra SKIP;
            mov.u32 %r2, 8;
        SKIP:
        }
        st.global.u32 [%own], %r2;";
    let expected: Vec<u32> = (0..64).map(|thread| [10, 20, 30, 30][thread % 4]).collect();
    assert_eq!(words(body, 64, 64), expected);
}

#[test]
fn old_style_functions_take_registers() {
    let text = format!(
        "{HEADER}
        .func (.reg .b32 %out, .reg .u64 %wide) twice(.reg .b32 %in)
        {{
            add.u32 %out, %in, %in;
            mul.wide.u32 %wide, %in, 3;
            ret;
        }}
        {}",
        kernel(
            "call (%r1, %rd1), twice, (%i); cvt.u32.u64 %r2, %rd1; add.u32 %r1, %r1, %r2; st.global.u32 [%own], %r1;"
        )
        .replace(HEADER, "")
    );
    let memory = Memory::default();
    let module = memory.load(&text);
    let to = memory.allocate(256);
    run(&memory, &module, "k", [1, 1, 1], [40, 1, 1], &[to.into()], 1).unwrap();
    assert_eq!(
        memory.download::<u32>(to, 40),
        (0..40).map(|thread| thread * 5).collect::<Vec<u32>>()
    );
}

#[test]
fn guarded_calls_and_returns_split_a_warp() {
    let text = format!(
        "{HEADER}
        .func (.param .b32 out) pick(.param .b32 in)
        {{
            .reg .b32 %r<4>;
            .reg .pred %p<3>;
            ld.param.b32 %r1, [in];
            st.param.b32 [out], 1;
            setp.lt.u32 %p1, %r1, 8;
            @%p1 ret;
            st.param.b32 [out], 2;
            setp.lt.u32 %p2, %r1, 16;
            @!%p2 st.param.b32 [out], 3;
            ret;
        }}
        {}",
        kernel(
            "mov.u32 %r1, 0;
            setp.lt.u32 %p1, %i, 24;
            {
                .param .b32 given;
                .param .b32 taken;
                st.param.b32 [given], %i;
                @%p1 call (taken), pick, (given);
                @%p1 ld.param.b32 %r1, [taken];
            }
            st.global.u32 [%own], %r1;"
        )
        .replace(HEADER, "")
    );
    let memory = Memory::default();
    let module = memory.load(&text);
    let to = memory.allocate(256);
    run(&memory, &module, "k", [1, 1, 1], [32, 1, 1], &[to.into()], 1).unwrap();
    let expected: Vec<u32> = (0..32u32).map(|thread| [1, 2, 3, 0][thread as usize / 8]).collect();
    assert_eq!(memory.download::<u32>(to, 32), expected);
}

#[test]
fn endless_recursion_overflows_the_stack() {
    let text = format!(
        "{HEADER}
        .func down(.param .b32 depth)
        {{
            .reg .b32 %r<3>;
            .local .b8 some[128];
            .param .b32 next;
            ld.param.b32 %r1, [depth];
            add.u32 %r1, %r1, 1;
            st.param.b32 [next], %r1;
            call down, (next);
            ret;
        }}
        {}",
        kernel("{ .param .b32 given; st.param.b32 [given], 0; call down, (given); }").replace(HEADER, "")
    );
    let memory = Memory::default();
    let module = memory.load(&text);
    let to = memory.allocate(4);
    let fault = run(&memory, &module, "k", [1, 1, 1], [1, 1, 1], &[to.into()], 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StackOverflow);
}

#[test]
fn lanes_wait_for_those_that_a_collective_names() {
    // Half of the warp arrives at the shuffle by a longer way.
    let body = "
        setp.lt.u32 %p1, %i, 16;
        mov.u32 %r1, %i;
        @%p1 bra JOIN;
        mov.u32 %r2, 0;
    LONGER:
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 100;
        @%p2 bra LONGER;
        add.u32 %r1, %r1, %r2;
    JOIN:
        shfl.sync.bfly.b32 %r3|%p3, %r1, 31, 31, -1;
        st.global.u32 [%own], %r3;";
    let expected: Vec<u32> = (0..32)
        .map(|thread| 31 - thread + if thread < 16 { 100 } else { 0 })
        .collect();
    assert_eq!(words(body, 32, 32), expected);
}

#[test]
fn shuffles_respect_segments_and_say_who_was_out_of_range() {
    let expect = |body: &str, expected: &dyn Fn(u32) -> u32| {
        let text = format!("{body} selp.u32 %r9, 100, 0, %p1; add.u32 %r1, %r1, %r9; st.global.u32 [%own], %r1;");
        assert_eq!(
            words(&text, 32, 32),
            (0..32).map(expected).collect::<Vec<u32>>(),
            "{body}"
        );
    };
    expect("shfl.sync.up.b32 %r1|%p1, %i, 3, 0, -1;", &|lane| {
        if lane >= 3 { lane - 3 + 100 } else { lane }
    });
    // Segments of eight lanes.
    expect("shfl.sync.down.b32 %r1|%p1, %i, 2, 0x1807, -1;", &|lane| {
        if lane % 8 < 6 { lane + 2 + 100 } else { lane }
    });
    expect("shfl.sync.idx.b32 %r1|%p1, %i, 5, 0x1807, -1;", &|lane| {
        lane / 8 * 8 + 5 + 100
    });
    expect("redux.sync.add.s32 %r1, %i, -1; setp.eq.u32 %p1, 0, 1;", &|_| 496);
    expect("redux.sync.max.u32 %r1, %i, -1; setp.eq.u32 %p1, 0, 1;", &|_| 31);
    expect("shr.u32 %r2, %i, 4; match.all.sync.b32 %r1|%p1, %r2, -1;", &|_| 0);
    expect("elect.sync %r1|%p1, -1;", &|lane| if lane == 0 { 100 } else { 0 });
    expect(
        "setp.lt.u32 %p2, %i, 9; vote.sync.uni.pred %p1, %p2, -1; vote.sync.ballot.b32 %r1, !%p2, -1;",
        &|_| 0xffff_fe00,
    );
}

#[test]
fn special_registers_say_where_a_thread_is() {
    let memory = Memory::default();
    let module = memory.load(&format!(
        "{HEADER}
        .visible .entry k(.param .u64 to)
        {{
            .reg .b64 %to, %at;
            .reg .b32 %r<30>;
            ld.param.u64 %to, [to];
            mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
            mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;
            mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y; mov.u32 %r9, %ntid.z;
            mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %nctaid.z;
            mad.lo.u32 %r13, %r6, %r11, %r5;
            mad.lo.u32 %r13, %r13, %r10, %r4;
            mad.lo.u32 %r13, %r13, %r9, %r3;
            mad.lo.u32 %r13, %r13, %r8, %r2;
            mad.lo.u32 %r13, %r13, %r7, %r1;
            mov.u32 %r14, %laneid; mov.u32 %r15, %warpid; mov.u32 %r16, %lanemask_lt;
            popc.b32 %r16, %r16;
            mad.wide.u32 %at, %r13, 16, %to;
            st.global.v4.u32 [%at], {{%r13, %r14, %r15, %r16}};
            ret;
        }}"
    ));
    let (grid, block) = ([2, 3, 2], [5, 4, 3]);
    let to = memory.allocate(16 * 720);
    run(&memory, &module, "k", grid, block, &[to.into()], 2).unwrap();
    let expected: Vec<u32> = (0..720u32)
        .flat_map(|thread| {
            let inside = thread % 60;
            [thread, inside % 32, inside / 32, inside % 32]
        })
        .collect();
    assert_eq!(memory.download::<u32>(to, 4 * 720), expected);
}

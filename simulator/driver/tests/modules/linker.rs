// SPDX-License-Identifier: Apache-2.0
//! The linker: two texts that need each other, and errors.

use partage_abi::types::*;

use crate::loading::{function, launch, load, text};
use crate::machine::{Driver, Value, call, code, on_machine, refused};

/// `CU_JIT_INPUT_*`.
const CUBIN: c_int = 0;
const PTX: c_int = 1;
const OBJECT: c_int = 3;

const CALLER: &str = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 out) square(.param .b32 in);
.visible .entry squares(.param .u64 to)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .param .b32 given;
    .param .b32 taken;
    mov.u32 %r1, %tid.x;
    st.param.b32 [given], %r1;
    call (taken), square, (given);
    ld.param.b32 %r2, [taken];
    ld.param.u64 %rd1, [to];
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r2;
    ret;
}";
const CALLED: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 out) square(.param .b32 in)
{
    .reg .b32 %r1;
    ld.param.b32 %r1, [in];
    mul.lo.u32 %r1, %r1, %r1;
    st.param.b32 [out], %r1;
    ret;
}";

fn create(driver: &Driver) -> CuLinkState {
    let mut state = CuLinkState::NULL;
    call!(
        driver,
        cuLinkCreate_v2(0, std::ptr::null_mut(), std::ptr::null_mut(), &mut state)
    );
    state
}

fn add(driver: &Driver, state: CuLinkState, kind: c_int, data: &[u8]) -> CuResult {
    let none = std::ptr::null_mut();
    let data_at = data.as_ptr().cast_mut().cast();
    code!(
        driver,
        cuLinkAddData_v2(
            state,
            kind,
            data_at,
            data.len(),
            c"input".as_ptr(),
            0,
            std::ptr::null_mut(),
            none
        )
    )
}

on_machine! {
    texts_that_need_each_other_become_one_image => |driver| {
        let state = create(driver);
        assert_eq!(add(driver, state, PTX, CALLER.as_bytes()), CuResult::SUCCESS);
        assert_eq!(add(driver, state, PTX, text(CALLED).as_bytes_with_nul()), CuResult::SUCCESS);
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        call!(driver, cuLinkComplete(state, &mut image, &mut bytes));
        assert!(bytes > CALLER.len() + CALLED.len());
        // A program may keep the image and destroy the linker first.
        // SAFETY: the linker says how long its image is.
        let kept = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec();
        call!(driver, cuLinkDestroy(state));
        refused!(INVALID_HANDLE: driver, cuLinkDestroy(state));
        let squares = function(driver, load(driver, kept.as_ptr().cast()), "squares");
        let memory = driver.memory(40);
        assert_eq!(launch(driver, squares, 10, &[Value::Long(memory)]), CuResult::SUCCESS);
        assert_eq!(driver.words(memory, 10), [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]);
    }

    what_cannot_be_linked_is_refused => |driver| {
        let state = create(driver);
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        refused!(INVALID_VALUE: driver, cuLinkComplete(state, &mut image, &mut bytes));
        assert_eq!(add(driver, state, PTX, b"nonsense"), CuResult::INVALID_PTX);
        assert_eq!(add(driver, state, PTX, b".version 8.0 .target sm_80 .frob"), CuResult::INVALID_PTX);
        assert_eq!(add(driver, state, CUBIN, b"nonsense"), CuResult::INVALID_IMAGE);
        assert_eq!(add(driver, state, OBJECT, b"nonsense"), CuResult::NOT_SUPPORTED);
        assert_eq!(add(driver, state, 77, b"nonsense"), CuResult::INVALID_VALUE);
        assert_eq!(add(driver, state, PTX, CALLER.as_bytes()), CuResult::SUCCESS);
        // The called function is missing.
        refused!(INVALID_PTX: driver, cuLinkComplete(state, &mut image, &mut bytes));
        call!(driver, cuLinkDestroy(state));
    }
}

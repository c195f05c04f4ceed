// SPDX-License-Identifier: Apache-2.0
//! Arrays that cannot be made, and when none can.

use super::*;

#[test]
fn a_capture_forbids_making_and_destroying_arrays() {
    in_child(
        "arrays::refused::a_capture_forbids_making_and_destroying_arrays",
        |cuda| {
            cuda.context(0);
            let (mut stream, mut graph) = (CuStream::NULL, CuGraph::NULL);
            ok!(cuda, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
            let descriptor = describe(BYTES, [64, 64, 0], 0);
            let array = create(cuda, &descriptor).expect("room");
            let mipmapped = create_mipmapped(cuda, &descriptor, 2).expect("room");
            let used = cuda.used();
            let unsafe_call = Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
            let mut made = CuArray::NULL;
            let flat = CudaArrayDescriptor {
                Width: 64,
                Height: 0,
                Format: BYTES.0,
                NumChannels: 1,
            };
            let attempts: [&dyn Fn() -> Result<(), CuResult>; 5] = [
                &|| create(cuda, &descriptor).map(drop),
                &|| create_mipmapped(cuda, &descriptor, 2).map(drop),
                &|| succeeded(code!(cuda, cuArrayCreate_v2(&mut made.clone(), &flat))),
                &|| succeeded(code!(cuda, cuArrayDestroy(array))),
                &|| succeeded(code!(cuda, cuMipmappedArrayDestroy(mipmapped))),
            ];
            for mode in [CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] {
                for attempt in attempts {
                    ok!(cuda, cuStreamBeginCapture_v2(stream, mode));
                    assert_eq!(attempt(), unsafe_call);
                    refused!(STREAM_CAPTURE_INVALIDATED: cuda, cuStreamEndCapture(stream, &mut graph));
                    assert_eq!(cuda.used(), used);
                }
            }
            ok!(cuda, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            ok!(cuda, cuArrayCreate_v2(&mut made, &flat));
            ok!(cuda, cuArrayDestroy(made));
            ok!(cuda, cuArrayDestroy(array));
            ok!(cuda, cuStreamEndCapture(stream, &mut graph));
        },
    );
}

fn succeeded(code: CuResult) -> Result<(), CuResult> {
    if code == CuResult::SUCCESS { Ok(()) } else { Err(code) }
}

/// Extents and flags of which no array is made.
const WRONG: [([usize; 3], u32); 38] = [
    ([0, 0, 0], 0),
    ([0, 8, 0], 0),
    ([0, 8, 8], LAYERED),
    ([8, 0, 8], 0),
    ([8, 0, 0], LAYERED),
    ([8, 8, 0], LAYERED),
    ([8, 8, 0], CUBEMAP),
    ([8, 8, 5], CUBEMAP),
    ([8, 8, 12], CUBEMAP),
    ([8, 4, 6], CUBEMAP),
    ([8, 0, 6], CUBEMAP),
    ([8, 8, 0], CUBEMAP | LAYERED),
    ([8, 8, 7], CUBEMAP | LAYERED),
    ([8, 0, 0], GATHER),
    ([8, 8, 8], GATHER),
    ([8, 8, 8], GATHER | LAYERED),
    ([8, 8, 6], GATHER | CUBEMAP),
    ([8, 8, 0], 0x200),
    ([8, 8, 0], 1 << 31),
    // One more than the limits of the device.
    ([131_073, 0, 0], 0),
    ([32_769, 0, 0], SURFACE),
    ([131_073, 1, 0], 0),
    ([1, 65_537, 0], 0),
    ([32_769, 1, 0], GATHER),
    ([1, 32_769, 0], GATHER),
    ([16_385, 1, 1], 0),
    ([1, 16_385, 1], 0),
    ([1, 1, 32_769], 0),
    ([1, 8_193, 16_385], 0),
    ([1, 1, 16_385], SURFACE),
    ([32_769, 0, 1], LAYERED),
    ([1, 0, 2_049], LAYERED),
    ([32_769, 1, 1], LAYERED),
    ([1, 1, 2_049], LAYERED),
    ([32_769, 32_769, 6], CUBEMAP),
    ([1, 1, 2_052], CUBEMAP | LAYERED),
    ([usize::MAX, 1, 0], 0),
    ([usize::MAX, usize::MAX, usize::MAX], LAYERED),
];

/// The edges themselves.
const WITHIN_LIMITS: [([usize; 3], u32); 8] = [
    ([131_072, 0, 0], 0),
    ([32_768, 0, 0], SURFACE),
    ([1, 65_536, 0], SURFACE),
    ([1, 32_768, 0], GATHER),
    ([1, 1, 16_384], SURFACE),
    ([1, 1, 32_768], 0),
    ([1, 1, 2_048], LAYERED),
    ([1, 1, 2_046], CUBEMAP | LAYERED),
];

#[test]
fn wrong_descriptors_are_refused() {
    in_child("arrays::refused::wrong_descriptors_are_refused", |cuda| {
        ok!(cuda, cuInit(0));
        let good = describe(BYTES, [8, 8, 0], 0);
        assert_eq!(create(cuda, &good), Err(CuResult::INVALID_CONTEXT));
        cuda.context(0);
        let before = cuda.used();
        for (extents, flags) in WRONG {
            let descriptor = describe(BYTES, extents, flags);
            assert_eq!(
                create(cuda, &descriptor),
                Err(CuResult::INVALID_VALUE),
                "{extents:?} {flags:#x}"
            );
            let mipmapped = create_mipmapped(cuda, &descriptor, 1);
            assert_eq!(mipmapped, Err(CuResult::INVALID_VALUE), "{extents:?} {flags:#x}");
        }
        let mut array = CuArray::NULL;
        refused!(INVALID_VALUE: cuda, cuArray3DCreate_v2(std::ptr::null_mut(), &good));
        refused!(INVALID_VALUE: cuda, cuArray3DCreate_v2(&mut array, std::ptr::null()));
        refused!(INVALID_VALUE: cuda, cuArrayCreate_v2(&mut array, std::ptr::null()));
        refused!(INVALID_VALUE: cuda, cuMipmappedArrayCreate(std::ptr::null_mut(), &good, 1));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn arrays_at_the_limits_are_made() {
    in_child("arrays::refused::arrays_at_the_limits_are_made", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        for (extents, flags) in WITHIN_LIMITS {
            ok!(
                cuda,
                cuArrayDestroy(create(cuda, &describe(BYTES, extents, flags)).expect("room"))
            );
        }
        // Mipmapped arrays have limits of their own, and flat ones no flags.
        for extents in [[32_769, 0, 0], [32_769, 1, 0], [1, 32_769, 0]] {
            let descriptor = describe(BYTES, extents, 0);
            assert_eq!(create_mipmapped(cuda, &descriptor, 1), Err(CuResult::INVALID_VALUE));
            ok!(cuda, cuArrayDestroy(create(cuda, &descriptor).expect("room")));
        }
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn memory_that_the_program_would_map_itself_is_not_supported() {
    in_child(
        "arrays::refused::memory_that_the_program_would_map_itself_is_not_supported",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            for flags in [CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING] {
                let descriptor = describe(BYTES, [8, 8, 0], flags);
                assert_eq!(create(cuda, &descriptor), Err(CuResult::NOT_SUPPORTED));
                let mipmapped = create_mipmapped(cuda, &descriptor, 1);
                assert_eq!(mipmapped, Err(CuResult::NOT_SUPPORTED));
            }
            assert_eq!(cuda.used(), before);
        },
    );
}

// SPDX-License-Identifier: Apache-2.0
//! What is not PTX, or not an image, is refused with its place, and never brings the reader down.

mod support;

use partage_ptx::{FatbinError, Image, ImageError, Loader, Module, Refusal, bytes_at};
use proptest::prelude::*;
use support::HEADER;

const KERNELS: &str = include_str!("../../../cuda-tests/kernels/interpreter_kernels.ptx");
const TEST_KERNELS: &str = include_str!("../../../cuda-tests/kernels/test_kernels.ptx");
const LZ4: &[u8] = include_bytes!("../../../cuda-tests/kernels/images/lz4.fatbin");
const ZSTD: &[u8] = include_bytes!("../../../cuda-tests/kernels/images/zstd.fatbin");
const PLAIN: &[u8] = include_bytes!("../../../cuda-tests/kernels/images/plain.fatbin");
const CUBIN: &[u8] = include_bytes!("../../../cuda-tests/kernels/images/sm_90.cubin");

const H200: Loader = Loader {
    arch: 90,
    newest_ptx: (9, 0),
    takes_machine_code: true,
};

#[test]
fn errors_name_line_and_column() {
    let cases = [
        ("", 1, 1, Refusal::Syntax),
        ("hello", 1, 1, Refusal::Syntax),
        (
            ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n  mov.u32 %r1, 0;\n}",
            5,
            3,
            Refusal::Unresolved,
        ),
        (
            ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n  ret\n}",
            6,
            1,
            Refusal::Syntax,
        ),
        (
            ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n  bra NOWHERE;\n}",
            5,
            3,
            Refusal::Unresolved,
        ),
        (".version 8.0\n.target sm_80\n.global .u33 x;", 3, 9, Refusal::Syntax),
        (
            ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n  .reg .f32 %f;\n  add.f32 %f, %f;\n}",
            6,
            3,
            Refusal::Syntax,
        ),
        // What is no token is named where it stands, unless something before it is wrong.
        (
            ".version 8.0\n.target sm_80\n.global .u32 x = 0x;",
            3,
            18,
            Refusal::Syntax,
        ),
        (
            ".version 8.0\n.target sm_80\n.global .u32 x = 1;\n/* never closed",
            4,
            1,
            Refusal::Syntax,
        ),
        (
            ".version 8.0\n.target sm_80\n.global .u33 x;\n/* never closed",
            3,
            9,
            Refusal::Syntax,
        ),
    ];
    for (text, line, column, refusal) in cases {
        let error = Module::from_ptx(text).map(|_| ()).unwrap_err();
        assert_eq!(
            (error.line, error.column, error.refusal),
            (line, column, refusal),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn unsupported_instructions_are_named() {
    let text = format!(
        "{HEADER}.visible .entry k(.param .u32 p) {{ .reg .b32 %r<9>; \n wgmma.fence.sync.aligned; }}\n\
         .visible .entry other() {{ ret; }}"
    );
    let module = Module::from_ptx(&text).expect("the other kernel can be run");
    let refused = module.kernel("k").expect("it is there");
    let error = refused.refusal().expect("it is refused");
    assert_eq!(error.refusal, Refusal::Unsupported);
    assert!(error.reason.contains("wgmma.fence.sync.aligned"), "{error}");
    assert_eq!(refused.parameters().len(), 1);
    assert!(module.kernel("other").expect("it is there").refusal().is_none());
}

#[test]
fn matrices_of_other_shapes_are_refused_by_name() {
    for text in [
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%r2};",
        "stmatrix.sync.aligned.m8n8.x3.shared.b16 [%r1], {%r2, %r3, %r4};",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r2, %r3}, [%r1];",
    ] {
        let module = format!("{HEADER}.visible .entry k() {{ .reg .b32 %r<9>; {text} ret; }}");
        let module = Module::from_ptx(&module).expect("the module is loaded");
        let kernel = module.kernel("k").expect("it is there");
        let error = kernel.refusal().expect("it is refused");
        let name = text.split(' ').next().unwrap();
        assert!(error.reason.contains(name), "{error}");
    }
}

#[test]
fn parts_of_words_of_video_instructions_are_refused_by_name() {
    for text in [
        "vshr.u32.u32.u32.clamp.add %r1, %r2.b0, %r3, %r4;",
        "vshl.u32.u32.u32.wrap %r1.h1, %r2, %r3, %r4;",
        "vadd.u32.u32.u32.add %r1, %r2, %r3, %r4;",
    ] {
        let module = format!("{HEADER}.visible .entry k() {{ .reg .b32 %r<9>; {text} ret; }}");
        let module = Module::from_ptx(&module).expect("the module is loaded");
        let kernel = module.kernel("k").expect("it is there");
        let error = kernel.refusal().expect("it is refused");
        let name = text.split(' ').next().unwrap();
        assert!(error.reason.contains(name), "{error}");
    }
}

#[test]
fn a_refusal_of_machine_code_names_a_few_kernels_only() {
    let refused = |count: usize| {
        let kernels = (0..count).map(|number| format!("kernel_{number}")).collect();
        ImageError::MachineCode { kernels, arch: 90 }.to_string()
    };
    let rest = "machine code for sm_90, which is not executed here";
    assert_eq!(refused(0), format!("the image is {rest}"));
    assert_eq!(refused(1), format!("kernel_0 is {rest}"));
    assert_eq!(refused(3), format!("kernel_0, kernel_1, kernel_2 are {rest}"));
    assert_eq!(
        refused(4000),
        format!("kernel_0, kernel_1, kernel_2 and 3997 more are {rest}")
    );
}

#[test]
fn machine_code_is_refused_by_a_loader_that_does_not_take_it() {
    let strict = Loader {
        takes_machine_code: false,
        ..H200
    };
    let error = strict.load(&[strict.choose(CUBIN).unwrap()]).map(|_| ()).unwrap_err();
    let ImageError::MachineCode { kernels, arch } = &error else {
        panic!("{error}");
    };
    assert_eq!((kernels.len(), *arch), (7, 90));
    assert!(error.to_string().contains("sum_reduce and 4 more"), "{error}");
    // A fat binary with PTX beside the machine code is taken for its PTX.
    assert!(strict.load(&[strict.choose(LZ4).unwrap()]).is_ok());
}

#[test]
fn constants_and_registers_are_what_the_text_says() {
    let text = format!(
        "{HEADER}.const .align 4 .b8 few[6];\n.const .align 16 .b8 more[32];\n.global .u32 none;\n\
         .visible .entry k() .maxnreg 24 {{ ret; }}\n.visible .entry free() {{ ret; }}"
    );
    let module = Module::from_ptx(&text).unwrap();
    let kernel = module.kernel("k").unwrap();
    assert_eq!((kernel.constant_bytes(), kernel.max_registers()), (48, 24));
    assert_eq!(module.kernel("free").unwrap().max_registers(), 0);
}

#[test]
fn newer_texts_than_the_machine_are_refused() {
    let text = |version: &str, target: &str| format!(".version {version}\n.target {target}\n.address_size 64\n");
    let load = |version: &str, target: &str| {
        let image = H200.choose(text(version, target).as_bytes()).unwrap();
        H200.load(&[image]).map(|_| ())
    };
    assert!(load("9.0", "sm_90a").is_ok());
    assert_eq!(
        load("9.1", "sm_75"),
        Err(ImageError::NewerVersion {
            version: (9, 1),
            newest: (9, 0)
        })
    );
    assert_eq!(
        load("8.7", "sm_100"),
        Err(ImageError::NewerTarget { target: 100, arch: 90 })
    );
}

#[test]
fn fat_binaries_of_every_compression_hold_the_same_text() {
    let texts: Vec<Image> = [LZ4, ZSTD, PLAIN]
        .iter()
        .map(|image| H200.choose(image).unwrap())
        .collect();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]));
    let module = H200.load(&texts[..1]).unwrap();
    assert!(module.kernel("sum_reduce").is_some_and(|kernel| !kernel.is_opaque()));
    // A device too old for the text and of another generation than the machine code finds nothing.
    let old = Loader { arch: 70, ..H200 };
    assert_eq!(old.choose(LZ4), Err(ImageError::NoEntry { arch: 70 }));
}

#[test]
fn machine_code_tells_names_parameters_and_variables() {
    let image = H200.choose(CUBIN).unwrap();
    let module = H200.load(&[image]).unwrap();
    let text = Module::from_ptx(TEST_KERNELS).unwrap();
    assert_eq!(module.kernels().len(), text.kernels().len());
    for kernel in module.kernels() {
        let written = text.kernel(kernel.name()).unwrap();
        let places = |kernel: &partage_ptx::Kernel| -> Vec<(u32, u32)> {
            kernel
                .parameters()
                .iter()
                .map(|parameter| (parameter.offset, parameter.size))
                .collect()
        };
        assert!(kernel.is_opaque() && kernel.registers() > 0);
        assert_eq!(places(kernel), places(&written), "{}", kernel.name());
    }
    let variables: Vec<(&str, u64)> = module
        .variables()
        .iter()
        .map(|variable| (variable.name.as_str(), variable.bytes))
        .collect();
    assert_eq!(variables, [("launches", 4), ("factors", 16)]);
    let factors: Vec<u8> = [1.0f32, 2.0, 4.0, 8.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    assert_eq!(module.image(1), factors);
}

#[test]
fn images_behind_pointers_are_measured() {
    let text = std::ffi::CString::new(TEST_KERNELS).unwrap();
    // A wrapper as compilers put it into programs: magic, version, pointer, nothing.
    let wrapper = [0x0000_0001_4662_43b1u64, ZSTD.as_ptr() as u64, 0];
    // SAFETY: each pointer leads to a whole image.
    unsafe {
        assert_eq!(bytes_at(text.as_ptr().cast()), Some(TEST_KERNELS.as_bytes()));
        assert_eq!(bytes_at(CUBIN.as_ptr()).map(<[u8]>::len), Some(CUBIN.len()));
        assert_eq!(bytes_at(LZ4.as_ptr()), Some(LZ4));
        assert_eq!(bytes_at(wrapper.as_ptr().cast()), Some(ZSTD));
    }
}

#[test]
fn damaged_images_are_refused() {
    assert_eq!(H200.choose(b"\x00\x01\x02"), Err(ImageError::Unknown));
    assert_eq!(
        H200.choose(&LZ4[..LZ4.len() - 1]),
        Err(ImageError::Fatbin(FatbinError::Damaged))
    );
    assert_eq!(
        H200.choose(&CUBIN[..100])
            .and_then(|image| H200.load(&[image]).map(|_| ())),
        Err(ImageError::Unknown)
    );
    let mut broken = LZ4.to_vec();
    broken[100..200].fill(0xff);
    assert_eq!(H200.choose(&broken), Err(ImageError::Fatbin(FatbinError::Compression)));
}

proptest! {
    #[test]
    fn garbage_is_an_error(text in "\\PC*") {
        prop_assert!(Module::from_ptx(&text).is_err());
    }

    #[test]
    fn words_of_ptx_in_any_order_never_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        ".version 8.0 .target sm_80 .address_size 64", ".visible .entry k", "(", ")", "{", "}", "[", "]", ";", ",",
        ".param .u64 a", ".reg .b32 %r<4>;", ".reg .pred %p;", "@%p", "@!%p", "add.u32 %r1, %r2, %r3;", "%r1", "L:",
        "bra L;", "ld.global.v2.f32", "mov.b64", "call", ".shared .b8 s[4];", "=", "-", "0x10", "0f3F800000", "1.5",
        "setp.lt.s32 %p, %r1, %r2;", "ret;", "// x\n", "/* y", "\"text\"", ".func", ".global .u32 g = 1;", "|", "!",
    ]), 0..60)) {
        let _ = Module::from_ptx(&words.join(" "));
    }

    #[test]
    fn damaged_texts_never_panic(at in 0usize..KERNELS.len(), with in "\\PC{0,8}", cut in 0usize..40) {
        let start = (0..=at).rev().find(|at| KERNELS.is_char_boundary(*at)).unwrap_or(0);
        let end = (start + cut..KERNELS.len()).find(|at| KERNELS.is_char_boundary(*at)).unwrap_or(KERNELS.len());
        let _ = Module::from_ptx(&format!("{}{with}{}", &KERNELS[..start], &KERNELS[end..]));
    }

    #[test]
    fn damaged_images_never_panic(at in 0usize..2000, byte in any::<u8>(), which in 0usize..4) {
        let mut image = [LZ4, ZSTD, PLAIN, CUBIN][which].to_vec();
        let length = image.len();
        image[at % length] = byte;
        let _ = H200.choose(&image).and_then(|image| H200.load(&[image]).map(|_| ()));
    }
}

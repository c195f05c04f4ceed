// SPDX-License-Identifier: Apache-2.0
//! Stand-ins are made, linked against by a C compiler, and loaded by the system's loader.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use partage_stand_ins::{Cuda, built, libraries, make};

/// A provider with two functions, one of which has a form of CUDA 12's own.
const PROVIDER: &str = r#"
#include <stdio.h>
long partage_refuse(const char *name, const char *library, int code) {
    printf("%s of %s: %d\n", name, library, code);
    return code;
}
const char *partage_refuse_text(const char *name, const char *library, int code) {
    partage_refuse(name, library, code);
    return "a text";
}
int partage_cudaMalloc(void **at, long size) { *at = (void *)size; return 0; }
int partage_cudaStreamGetCaptureInfo(int a, int b, int c, int d, int e, int f, int g, int h) { return 13 + h; }
int partage_cudaStreamGetCaptureInfo_v12(int a, int b, int c, int d, int e, int f, int g) { return 12 + g; }
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
int cudaMalloc(void **, long);
int cudaStreamGetCaptureInfo(int, int, int, int, int, int, int, int);
int cudaCreateTextureObject(void);
int main(void) {
    void *at = 0;
    int code = cudaMalloc(&at, 4711);
    printf("%d %ld %d\n", code, (long)at, cudaStreamGetCaptureInfo(1, 2, 3, 4, 5, 6, 700, 800));
    printf("%d\n", cudaCreateTextureObject());
    return 0;
}
"#;

/// A folder of its own below the build folder, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("writable");
    folder
}

fn compile(folder: &Path, file: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let (text, made) = (folder.join(format!("{file}.c")), folder.join(file));
    fs::write(&text, source).expect("writable");
    let cc = Command::new("cc")
        .arg("-o")
        .arg(&made)
        .arg(&text)
        .args(arguments)
        .output()
        .expect("cc");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    made
}

fn output(command: &mut Command) -> String {
    let done = command.output().expect("runs");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success(), "{text}");
    text
}

#[test]
fn a_linked_program_finds_each_name_with_its_version() {
    let folder = folder("linked");
    let provider = compile(&folder, "libpartage_sim_runtime.so", PROVIDER, &["-shared", "-fPIC"]);
    let made = make(&folder.join("cuda"), &[&provider]).expect("made");
    let asked: usize = libraries().iter().map(|library| library.files().len()).sum();
    assert_eq!(made, asked);
    for (soname, number) in [("libcudart.so.12", 712), ("libcudart.so.13", 813)] {
        let library = folder.join("cuda").join(soname);
        let program = compile(
            &folder,
            &format!("of-{soname}"),
            PROGRAM,
            &[library.to_str().expect("text")],
        );
        // Nothing is written but by the program and the refusal: no complaint of the loader's.
        let said = output(Command::new(&program).env("LD_LIBRARY_PATH", folder.join("cuda")));
        assert_eq!(
            said,
            format!("0 4711 {number}\ncudaCreateTextureObject of {soname}: 801\n801\n")
        );
        let versions = output(Command::new("readelf").arg("-VW").arg(&program));
        assert!(versions.contains(&format!("Name: {soname}")), "{versions}");
    }
}

#[test]
fn every_stand_in_is_loaded_with_all_it_needs() {
    let folder = folder("loaded");
    let provider = compile(&folder, "libpartage_sim_runtime.so", PROVIDER, &["-shared", "-fPIC"]);
    make(&folder.join("cuda"), &[&provider]).expect("made");
    for library in libraries() {
        for (cuda, soname) in library.files() {
            // SAFETY: the files have no constructor.
            let loaded = unsafe { libloading::Library::new(folder.join("cuda").join(&soname)) };
            let loaded = loaded.unwrap_or_else(|error| panic!("{soname}: {error}"));
            let names = library.names(cuda);
            // PyTorch 2.6.0 wants the file of cuRAND and none of its functions.
            assert!(!names.is_empty() || library.name == "curand", "{soname}");
            for name in names {
                // SAFETY: the function is looked up, and not called.
                let found = unsafe { loaded.get::<*const ()>(name.symbol.as_bytes()) };
                assert!(found.is_ok(), "{soname}: {}", name.symbol);
            }
        }
    }
}

#[test]
fn a_name_is_built_where_a_provider_has_it() {
    let folder = folder("built");
    let provider = compile(&folder, "libpartage_sim_runtime.so", PROVIDER, &["-shared", "-fPIC"]);
    let runtime = libraries()
        .into_iter()
        .find(|library| library.name == "cudart")
        .expect("listed");
    let (has, refuses) = built(&runtime, Cuda::Twelve, &[&provider]).expect("read");
    assert_eq!(has, ["cudaMalloc", "cudaStreamGetCaptureInfo"]);
    assert!(refuses.iter().any(|name| name == "cudaCreateTextureObject"));
}

#[test]
fn without_a_refusal_nothing_is_made() {
    let folder = folder("without");
    let provider = compile(
        &folder,
        "libother.so",
        "int partage_cudaMalloc(void) { return 0; }",
        &["-shared"],
    );
    let refused = make(&folder.join("cuda"), &[&provider])
        .expect_err("no refusal")
        .to_string();
    assert!(refused.contains("partage_refuse"), "{refused}");
    let text = folder.join("libother.so.c");
    let refused = make(&folder.join("cuda"), &[&text])
        .expect_err("no library")
        .to_string();
    assert!(refused.contains("libother.so.c is no shared object"), "{refused}");
}

#[test]
fn a_quiet_library_answers_its_code_and_says_nothing() {
    let folder = folder("quiet");
    let provider = compile(&folder, "libpartage_sim_runtime.so", PROVIDER, &["-shared", "-fPIC"]);
    make(&folder.join("cuda"), &[&provider]).expect("made");
    let source = "#include <stdio.h>\nlong nvtxRangePushA(const char *);\n\
                  int main(void) { printf(\"%ld\\n\", nvtxRangePushA(\"range\")); return 0; }";
    let library = folder.join("cuda/libnvToolsExt.so.1");
    let program = compile(&folder, "marks", source, &[library.to_str().expect("text")]);
    assert_eq!(
        output(Command::new(&program).env("LD_LIBRARY_PATH", folder.join("cuda"))),
        "-2\n"
    );
}

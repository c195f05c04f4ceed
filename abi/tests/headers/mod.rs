// SPDX-License-Identifier: Apache-2.0
//! The vendor's headers, read with the C compiler: where they are, what they declare, what a small program prints.
//!
//! `PARTAGE_CUDA_HEADERS` names the folder with `cuda.h`, `cudaTypedefs.h` and `nvml.h` of the pinned release 13.5
//! (packages nvidia-cuda-runtime and nvidia-nvml-dev). Without it these tests say that they checked nothing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Declares every version of every function, the old ones under their own names.
pub const ALL_VERSIONS: &str = "-D__CUDA_API_VERSION_INTERNAL";

/// Headers of other vendors that the interoperability headers include: only the names they use.
const FOREIGN: &[(&str, &str)] = &[
    (
        "GL/gl.h",
        "#pragma once\ntypedef unsigned int GLenum; typedef unsigned int GLuint; typedef int GLsizei;\n",
    ),
    (
        "EGL/egl.h",
        "#pragma once\ntypedef void *EGLDisplay, *EGLSyncKHR, *EGLImageKHR, *EGLStreamKHR;\n\
         typedef int EGLint; typedef unsigned int EGLBoolean;\n",
    ),
    ("EGL/eglext.h", "#pragma once\n"),
    (
        "vdpau/vdpau.h",
        "#pragma once\n#include <stdint.h>\ntypedef uint32_t VdpDevice, VdpVideoSurface, VdpOutputSurface;\n\
         typedef int VdpGetProcAddress(VdpDevice, uint32_t, void **);\n",
    ),
];

/// The folder of headers, or `None` after saying loudly that `test` checked nothing.
pub fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PARTAGE_CUDA_HEADERS").map(PathBuf::from);
    match &folder {
        Some(folder) => {
            for header in ["cuda.h", "cudaTypedefs.h", "nvml.h"] {
                assert!(
                    folder.join(header).is_file(),
                    "PARTAGE_CUDA_HEADERS={} has no {header}",
                    folder.display()
                );
            }
        }
        // Written past the test harness, which would hide what a passing test prints.
        None => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: {test}: PARTAGE_CUDA_HEADERS is not set, nothing compared"
            );
        }
    }
    folder
}

/// A folder for one use of the compiler, removed afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("partage-abi-{}-{number}", std::process::id()));
        for (name, text) in FOREIGN {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Self(path)
    }

    fn compiler(&self, headers: &Path, source: &str) -> Command {
        let file = self.0.join("source.c");
        fs::write(&file, source).unwrap();
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        cc.arg("-I").arg(headers).arg("-I").arg(&self.0).arg("-w").arg(file);
        cc
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The text of a source after the preprocessor.
pub fn preprocess(headers: &Path, flag: &str, source: &str) -> String {
    let scratch = Scratch::new();
    let mut cc = scratch.compiler(headers, source);
    // Attributes stand between the answer's type and the name; they say nothing that is compared here.
    let out = cc
        .args(["-E", "-P", "-D__attribute__(x)=", flag])
        .output()
        .expect("a C compiler as `cc`");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// What a C program prints.
pub fn run(headers: &Path, flag: &str, source: &str) -> String {
    let scratch = Scratch::new();
    let program = scratch.0.join("program");
    let out = scratch
        .compiler(headers, source)
        .arg(flag)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(program).output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

/// Declarations `<answer> <prefix…>(arguments);` in preprocessed text: name and the text of each argument.
pub fn functions(text: &str, prefix: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        let statement = statement.trim_start();
        if statement.starts_with("typedef") || statement.contains('{') && !statement.contains('}') {
            continue;
        }
        let Some(open) = statement.find('(') else { continue };
        let name = statement[..open]
            .trim_end()
            .rsplit([' ', '\n', '*', '\t'])
            .next()
            .unwrap_or_default();
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name || !name.starts_with(prefix) || statement[..open].trim() == name {
            continue;
        }
        let Some(close) = statement.rfind(')') else { continue };
        found.push((name.to_owned(), arguments(&statement[open + 1..close])));
    }
    found
}

/// Splits an argument list at its top-level commas; `void` is none.
pub fn arguments(list: &str) -> Vec<String> {
    let (mut found, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in list.chars() {
        depth += (c == '(') as i32 - (c == ')') as i32;
        if c == ',' && depth == 0 {
            found.push(std::mem::take(&mut current));
        } else {
            current.push(if c.is_whitespace() { ' ' } else { c });
        }
    }
    found.push(current);
    let found: Vec<_> = found.iter().map(|argument| argument.trim().to_owned()).collect();
    if found == ["void"] || found == [""] {
        Vec::new()
    } else {
        found
    }
}

/// The type of an argument text without its name; `None` where it is a pointer or an array.
pub fn value_type(argument: &str) -> Option<String> {
    if argument.contains(['*', '[', '(']) {
        return None;
    }
    let mut words: Vec<_> = argument.split(' ').filter(|word| !word.is_empty()).collect();
    if words.len() > 1 && !["int", "char", "short", "long", "unsigned", "float", "double"].contains(words.last()?) {
        words.pop();
    }
    Some(words.join(" "))
}

/// The type that an argument text leads to; `None` where it is a value, an array, a function, or leads to `void`.
pub fn pointee_type(argument: &str) -> Option<String> {
    if argument.contains(['[', '(']) {
        return None;
    }
    let (kind, _) = argument.rsplit_once('*')?;
    let kind = kind.trim();
    let is_bytes = kind.split(' ').all(|word| ["const", "void", ""].contains(&word));
    (!is_bytes).then(|| kind.to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! One build script for all packages (each says `build = "../build.rs"`): the version string with the commit,
//! and the link arguments of the shared objects. Refuses processors that nothing here was written for.

use std::process::Command;

fn main() {
    refuse_other_processors();
    // Cargo runs this script with the package's folder as its working folder.
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|out| out.status.success())
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
        // A source archive has no repository; the version alone then identifies the build.
        .unwrap_or_else(|| "unknown".to_owned());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=PARTAGE_VERSION={version}");
    println!("cargo::rustc-env=PARTAGE_COMMIT={commit}");
    // A path that is not there would make Cargo run this again, and compile everything again, at every build.
    let package = std::path::PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").exists())
        .unwrap_or(&package);
    println!("cargo::rerun-if-changed={}", root.join("build.rs").display());
    let name = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    // Only these two show the commit: a new commit compiles them again and nothing else.
    let head = root.join(".git/logs/HEAD");
    if matches!(name.as_str(), "partage-cli" | "partage-broker") && head.exists() {
        println!("cargo::rerun-if-changed={}", head.display());
    }

    // Clients ask the dynamic linker for these sonames; Cargo derives file names from crate names instead.
    // -Bsymbolic: a preloaded library must not interpose a driver's calls to its own exports.
    match name.as_str() {
        "partage-sim" => link(&["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]),
        "partage-sim-runtime" => link(&["-Wl,-soname,libpartage_sim_runtime.so", "-Wl,-Bsymbolic"]),
        "partage-sim-nvml" => link(&["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic"]),
        "partage-sim-blas" => link(&["-Wl,-soname,libpartage_sim_blas.so", "-Wl,-Bsymbolic"]),
        "partage-interposer" => {
            // No start files: the library has no constructor and must not need a C runtime. `-z defs`: every symbol is
            // found at link time, which is what makes the release panic handler a proof. `-Bsymbolic`: the hooks that
            // `dlsym` hands out are ours, never those of another preloaded library with the same exports, which may
            // come back to us through `dlsym` for ever.
            link(&[
                "-Wl,-soname,libpartage.so",
                "-nostartfiles",
                "-Wl,-z,defs",
                "-Wl,-Bsymbolic",
                // Every loader since 2006 reads this table; a linker may write the older one beside it.
                "-Wl,--hash-style=gnu",
                // The libc crate names these itself only without its `std` feature, which a workspace build turns on.
                "-lc",
                "-lpthread",
                "-ldl",
            ]);
            println!("cargo::rustc-check-cfg=cfg(panic_free)");
            if std::env::var("PROFILE").as_deref() == Ok("release") {
                println!("cargo::rustc-cfg=panic_free");
            }
        }
        _ => {}
    }
}

fn link(arguments: &[&str]) {
    for argument in arguments {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
}

/// What the library does in assembly exists for two processors, and what processes share is little-endian.
fn refuse_other_processors() {
    let asked = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (processor, endian, width) = (asked("ARCH"), asked("ENDIAN"), asked("POINTER_WIDTH"));
    if !matches!(processor.as_str(), "x86_64" | "aarch64") || endian != "little" || width != "64" {
        println!(
            "cargo::error=Partage is not written for {processor} ({width} bits, {endian}-endian): \
             build for x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu"
        );
    }
}

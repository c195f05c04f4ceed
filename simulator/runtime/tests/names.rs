// SPDX-License-Identifier: Apache-2.0
//! What PyTorch binds of the CUDA runtime is in the stand-ins that are made of this library, with its version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _};
use partage_stand_ins::{Cuda, Library, built, libraries, make};

/// A generation of CUDA, and the names that a PyTorch binds of it.
const BOUND: [(Cuda, &str); 2] = [
    (Cuda::Twelve, include_str!("../names/torch-2.6.0.txt")),
    (Cuda::Thirteen, include_str!("../names/torch-2.15.0.txt")),
];

/// This package's library, which Cargo builds beside this test.
fn provider() -> PathBuf {
    let test = std::env::current_exe().expect("the kernel knows this program's path");
    let folder = test.parent().expect("a test lies in a folder");
    folder.join("libpartage_sim_runtime.so")
}

fn runtime() -> Library {
    let mut all = libraries().into_iter();
    all.find(|library| library.name == "cudart").expect("listed")
}

/// The exported names of a file, each with its version where it has one.
fn exported(path: &Path) -> BTreeMap<String, Option<String>> {
    let bytes = fs::read(path).expect("made");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("a shared object");
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let versions = sections.versions(endian, &*bytes).expect("readable");
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let with_version = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?.to_owned();
        let version = versions.as_ref().and_then(|versions| {
            let index = versions.version_index(endian, symbol.index());
            let version = versions.version(index).ok()??;
            Some(String::from_utf8_lossy(version.name()).into_owned())
        });
        Some((name, version))
    });
    with_version.collect()
}

#[test]
fn whatever_pytorch_binds_is_exported_with_its_version() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exported");
    let _ = fs::remove_dir_all(&folder);
    make(&folder, &[&provider()]).expect("made");
    let library = runtime();
    for (cuda, bound) in BOUND {
        let soname = library.sonames[usize::from(cuda == Cuda::Thirteen)];
        let exported = exported(&folder.join(soname));
        for name in bound.lines().filter(|line| !line.starts_with('#')) {
            let version = exported.get(name).unwrap_or_else(|| panic!("{name} of {soname}"));
            assert_eq!(version.as_deref(), Some(soname), "{name}");
        }
    }
}

#[test]
fn every_name_has_a_function_and_every_function_a_name() {
    let library = runtime();
    let mut reached = BTreeSet::new();
    for cuda in [Cuda::Twelve, Cuda::Thirteen] {
        let (names, without) = built(&library, cuda, &[&provider()]).expect("read");
        assert!(without.is_empty(), "no row for these of {cuda:?}: {without:?}");
        let old = |name: &String| format!("partage_{name}_v12");
        reached.extend(names.iter().map(old).filter(|_| cuda == Cuda::Twelve));
        reached.extend(names.iter().map(|name| format!("partage_{name}")));
    }
    // What leads to it is another library's name, whose function is in no provider.
    let own = exported(&provider());
    let rows = own
        .keys()
        .filter(|name| name.starts_with("partage_") && !name.starts_with("partage_refuse"));
    let unreached: Vec<_> = rows.filter(|name| !reached.contains(*name)).collect();
    assert!(unreached.is_empty(), "{unreached:?}");
}

// SPDX-License-Identifier: Apache-2.0
//! Stand-ins for the CUDA runtime and its companions: shared objects under the vendor's names, made where they are
//! used.
//!
//! A program or a framework that is linked against `libcudart.so.12` wants a file of that name, with each name that it
//! binds and the version that it binds it by. The functions themselves are in two *providers*,
//! `libpartage_sim_runtime.so` and `libpartage_sim_blas.so`, as `partage_cudaMalloc` for `cudaMalloc`; where CUDA 12's
//! and 13's differ, 12's is `partage_NAME_v12`. A stand-in is a file of jumps: a name that a provider has leads there,
//! any other to `partage_refuse` of the runtime's provider, which says the name once and answers the library's code for
//! "not supported".
//!
//! The lists of names ([`libraries`]) come from symbol tables alone. Made for x86-64 and aarch64.

mod code;
mod elf;
mod names;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Object as _, ObjectSymbol as _};

use crate::code::Processor;
use crate::elf::{Object, Target};
pub use crate::names::{Cuda, Library, Name, libraries};

/// Why there are no stand-ins.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{doing} {path}: {error}", path = path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The operating system's word.
        error: std::io::Error,
    },
    /// A provider is no shared object of this processor.
    #[error("{path} is no shared object that can be read: {error}", path = path.display())]
    Provider {
        /// The file.
        path: PathBuf,
        /// The reader's word.
        error: object::read::Error,
    },
    /// No provider has the refusal.
    #[error("none of the providers exports {REFUSE}")]
    NoRefusal,
    /// A file could not be laid out.
    #[error("laying out {0}: {1}")]
    Layout(String, object::write::Error),
}

/// The function that a name leads to that nothing else does: `(name, library, code) -> code`, as wide as a
/// pointer.
pub const REFUSE: &str = "partage_refuse";
/// As [`REFUSE`], for functions that answer a text.
pub const REFUSE_TEXT: &str = "partage_refuse_text";

/// A library with functions, and their names.
struct Provider {
    soname: String,
    functions: BTreeSet<String>,
}

impl Provider {
    fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|error| file("reading", path, error))?;
        let wrong = |error| Error::Provider {
            path: path.to_owned(),
            error,
        };
        let elf = ElfFile64::<object::Endianness>::parse(&*bytes).map_err(wrong)?;
        debug_assert_eq!(elf.elf_header().e_machine(elf.endian()), Processor::HERE.machine());
        let defined = elf
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.is_global());
        let functions = defined
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
            .collect();
        let soname = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { soname, functions })
    }
}

/// Whether stand-ins can be made of these providers.
///
/// # Errors
/// As [`make`], but for what only writing finds.
pub fn check(providers: &[&Path]) -> Result<(), Error> {
    let read = providers.iter().map(|path| Provider::read(path));
    let read = read.collect::<Result<Vec<_>, _>>()?;
    home_of(REFUSE, &read).ok_or(Error::NoRefusal).map(drop)
}

/// The place of the provider that has a function.
fn home_of(function: &str, providers: &[Provider]) -> Option<usize> {
    providers
        .iter()
        .position(|provider| provider.functions.contains(function))
}

/// Makes the stand-ins in `folder`, with links to the providers beside them, and gives how many files it made.
///
/// # Errors
/// [`Error`], with the file.
pub fn make(folder: &Path, providers: &[&Path]) -> Result<usize, Error> {
    let read = providers
        .iter()
        .map(|path| Provider::read(path))
        .collect::<Result<Vec<_>, _>>()?;
    fs::create_dir_all(folder).map_err(|error| file("making", folder, error))?;
    for (path, provider) in providers.iter().zip(&read) {
        let link = folder.join(&provider.soname);
        let _ = fs::remove_file(&link);
        symlink(path, &link).map_err(|error| file("linking", &link, error))?;
    }
    let mut made = 0;
    for library in libraries() {
        for (cuda, soname) in library.files() {
            let bytes = object_of(&library, cuda, &soname, &read)?
                .bytes()
                .map_err(|error| Error::Layout(soname.clone(), error))?;
            let path = folder.join(&soname);
            fs::write(&path, bytes).map_err(|error| file("writing", &path, error))?;
            made += 1;
        }
    }
    Ok(made)
}

/// Which of a library's names a provider has, and which are refused: `(built, refused)`.
///
/// # Errors
/// As [`make`].
pub fn built(library: &Library, cuda: Cuda, providers: &[&Path]) -> Result<(Vec<String>, Vec<String>), Error> {
    let read = providers
        .iter()
        .map(|path| Provider::read(path))
        .collect::<Result<Vec<_>, _>>()?;
    let names = library.names(cuda).into_iter().map(|name| name.symbol.to_owned());
    Ok(names.partition(|name| function_of(name, cuda, &read).is_some()))
}

/// The provider's function for a name, and its provider's place.
fn function_of(name: &str, cuda: Cuda, providers: &[Provider]) -> Option<(usize, String)> {
    let own = format!("partage_{name}");
    let old = (cuda == Cuda::Twelve).then(|| format!("{own}_v12"));
    old.into_iter().chain([own]).find_map(|function| {
        let place = home_of(&function, providers)?;
        Some((place, function))
    })
}

fn object_of(library: &Library, cuda: Cuda, soname: &str, providers: &[Provider]) -> Result<Object, Error> {
    let refuses = home_of(REFUSE, providers).ok_or(Error::NoRefusal)?;
    let mut needed = BTreeSet::from([refuses]);
    let mut imports = vec![REFUSE.to_owned(), REFUSE_TEXT.to_owned()];
    let mut exports = Vec::new();
    for name in library.names(cuda) {
        let answer = name.answer.unwrap_or(library.refusal);
        let target = match function_of(name.symbol, cuda, providers) {
            Some((provider, function)) => {
                needed.insert(provider);
                imports.push(function);
                Target::Import(imports.len() - 1)
            }
            None if library.is_quiet => Target::Answer(answer),
            None => Target::Refusal(usize::from(name.is_text), answer),
        };
        exports.push((name.symbol.to_owned(), target));
    }
    Ok(Object {
        processor: Processor::HERE,
        soname: soname.to_owned(),
        version: library.version(cuda).map(str::to_owned),
        needed: needed
            .into_iter()
            .map(|place| providers[place].soname.clone())
            .collect(),
        imports,
        exports,
    })
}

fn file(doing: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::File {
        doing,
        path: path.to_owned(),
        error,
    }
}

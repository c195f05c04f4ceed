// SPDX-License-Identifier: Apache-2.0
//! Whether a snapshot can be restored here, as far as that is known without a broker: whose it is, what the processor
//! can, which library its processes have. What the broker knows (devices, driver) it says before it admits the job.

use std::collections::BTreeSet;
use std::path::Path;

use partage_protocol::message::MAJOR;
use partage_protocol::snapshot::{Manifest, Unfit};

use super::own_mounts;

/// How the names of x86 features begin that are instructions, or state that they use. The kernel lists more, of its own
/// making, which come and go with its releases and are nothing to a program.
const INSTRUCTIONS: [&str; 43] = [
    "3dnow",
    "abm",
    "adx",
    "aes",
    "amx",
    "avx",
    "bmi",
    "cldemote",
    "clflush",
    "clwb",
    "clzero",
    "cmov",
    "cx16",
    "cx8",
    "erms",
    "f16c",
    "fma",
    "fpu",
    "fsgsbase",
    "fsrm",
    "fxsr",
    "gfni",
    "lahf",
    "mmx",
    "movbe",
    "movdir",
    "pclmul",
    "popcnt",
    "rdpid",
    "rdrand",
    "rdseed",
    "rdtscp",
    "rtm",
    "serialize",
    "sha",
    "sse",
    "ssse",
    "tbm",
    "vaes",
    "vpclmul",
    "xgetbv",
    "xop",
    "xsave",
];

/// What the machine is.
#[derive(Clone, Debug)]
pub struct Here {
    /// Who restores.
    pub uid: u32,
    /// [`processor`](super::dump::processor).
    pub processor: String,
}

/// Can it be restored here?
///
/// # Errors
/// [`Unfit`], with the name of the field.
pub fn check(manifest: &Manifest, here: &Here) -> Result<(), Unfit> {
    if manifest.job.uid != here.uid {
        let why = format!(
            "it was a job of uid {}, and uid {} cannot restore it",
            manifest.job.uid, here.uid
        );
        return Err(Unfit::new("uid", why));
    }
    let missing: Vec<&str> = missing(&manifest.processor, &here.processor).collect();
    if !missing.is_empty() {
        let why = format!(
            "this one lacks {}, which the job was started with and may use",
            missing.join(", ")
        );
        return Err(Unfit::new("processor", why));
    }
    if let Some(saved) = manifest.protocol.filter(|saved| *saved != MAJOR) {
        let why = format!(
            "the processes have a library of protocol {saved}, and this version of Partage speaks {MAJOR}: restore it \
             with version {}",
            manifest.partage
        );
        return Err(Unfit::new("protocol", why));
    }
    same_library(manifest)
}

/// The library lies under a name that says its content, but anybody may have written to that place.
fn same_library(manifest: &Manifest) -> Result<(), Unfit> {
    let unfit = |why: String| Unfit::new("library", why);
    let saved = own_mounts::saved_library(manifest).map_err(unfit)?;
    own_mounts::find_library(Path::new(&manifest.library), saved)
        .map(drop)
        .map_err(unfit)
}

/// Instructions that a processor had and another has not.
fn missing<'a>(saved: &'a str, here: &str) -> impl Iterator<Item = &'a str> {
    let here: BTreeSet<&str> = features(here).into_iter().collect();
    features(saved).into_iter().filter(move |name| !here.contains(name))
}

/// The part of such a text that lists features: the one with the most words. All of them count where none is an x86
/// processor's: Arm's kernels list what programs may use.
fn features(text: &str) -> Vec<&str> {
    let parts = text.split("; ").map(|part| part.split_whitespace().collect::<Vec<_>>());
    let words = parts.max_by_key(Vec::len).unwrap_or_default();
    if !words.contains(&"fpu") {
        return words;
    }
    let is_one = |word: &&str| INSTRUCTIONS.iter().any(|name| word.starts_with(name));
    words.into_iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use partage_protocol::snapshot::{FILES, SavedFile, SavedJob};

    use super::*;
    use crate::snapshot::files::{Disk, Files};

    const X86: &str = "GenuineIntel; 6; 143; fpu vme sse2 avx2 avx512f ibrs_enhanced";
    const ARM: &str = "fp asimd sve; 0x41; 0xd40";

    /// Makes a manifest say something else.
    type Change = fn(&mut Manifest);

    fn here() -> Here {
        Here {
            uid: 7,
            processor: X86.to_owned(),
        }
    }

    /// A snapshot that fits, with a library that is there.
    fn good() -> Manifest {
        let library = std::env::current_exe().expect("this program");
        let (bytes, sum) = Disk.sum(&library).expect("readable");
        let name = library.file_name().expect("a name").to_string_lossy();
        let file = SavedFile {
            path: format!("{FILES}/{name}"),
            bytes,
            sum,
        };
        Manifest {
            job: SavedJob {
                uid: 7,
                ..SavedJob::default()
            },
            processor: X86.to_owned(),
            protocol: Some(MAJOR),
            library: library.display().to_string(),
            files: vec![file],
            ..Manifest::default()
        }
    }

    #[test]
    fn each_field_that_does_not_fit_says_so_by_its_name() {
        let manifest = good();
        assert_eq!(check(&manifest, &here()), Ok(()));
        let wrong: [(&str, Change); 5] = [
            ("uid", |manifest| manifest.job.uid = 8),
            ("processor", |manifest| manifest.processor.push_str(" amx_tile")),
            ("protocol", |manifest| manifest.protocol = Some(MAJOR + 1)),
            ("library", |manifest| manifest.files[0].sum ^= 1),
            ("library", |manifest| manifest.files.clear()),
        ];
        for (field, change) in wrong {
            let mut manifest = good();
            change(&mut manifest);
            let unfit = check(&manifest, &here()).expect_err(field);
            assert_eq!(unfit.field, field, "{unfit}");
        }
        // It is put back where it is gone, and format 1 says no protocol.
        let mut manifest = good();
        let name = Path::new(&manifest.library)
            .file_name()
            .map(|name| Path::new("/none").join(name));
        manifest.library = name.expect("a name").display().to_string();
        manifest.protocol = None;
        assert_eq!(check(&manifest, &here()), Ok(()));
    }

    #[test]
    fn only_instructions_are_missed() {
        let lacks = |saved: &str, here: &str| missing(saved, here).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lacks(X86, "GenuineIntel; 6; 85; fpu sse2 avx2"), ["avx512f"]);
        assert_eq!(lacks(X86, "AuthenticAMD; 25; 1; fpu sse2 avx2 avx512f"), [""; 0]);
        assert_eq!(lacks(ARM, "fp asimd; 0x41; 0xd0c"), ["sve"]);
        assert_eq!(lacks("", X86), [""; 0]);
    }
}

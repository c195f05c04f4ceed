// SPDX-License-Identifier: Apache-2.0
//! Manifests are read back as they were written, and nothing that was changed is believed.

use partage_protocol::snapshot::{
    FORMAT, Manifest, OpenFile, OpenFiles, SavedClient, SavedDevice, SavedFile, SavedJob, SavedShared, SavedTerms,
    Shared, generation_name, generation_of,
};
use proptest::prelude::*;

fn terms() -> impl Strategy<Value = SavedTerms> {
    let number = || any::<Option<u64>>();
    let labels = prop::collection::vec((".{0,9}", ".{0,9}"), 0..3);
    let terms = (
        number(),
        number(),
        number(),
        any::<Option<bool>>(),
        any::<bool>(),
        labels,
    );
    terms.prop_map(
        |(process_bytes, time_left_ns, idle_release_ns, preemptible, strict, labels)| SavedTerms {
            process_bytes,
            time_left_ns,
            preemptible,
            idle_release_ns,
            strict,
            labels,
        },
    )
}

fn manifests() -> impl Strategy<Value = Manifest> {
    let clients = prop::collection::vec(
        (2_u32..9, any::<u64>(), prop::collection::vec(any::<u64>(), 0..2)),
        0..4,
    );
    let files = prop::collection::btree_map("[a-z]{1,8}(/[a-z]{1,8})?", (any::<u64>(), any::<u64>()), 0..5);
    let manifest = (1_u64..99, clients, files, ".{0,20}", any::<u64>(), terms());
    manifest.prop_map(|(generation, clients, files, text, number, terms)| {
        let client = |(pid, client, owed)| SavedClient { pid, client, owed };
        Manifest {
            format: FORMAT,
            generation,
            made_unix_ns: number,
            root: 2,
            partage: text.clone(),
            streams: vec![text.clone(), "pipe:[7]".to_owned()],
            devices: vec![SavedDevice {
                uuid: text.clone(),
                name: text,
                total_bytes: number,
            }],
            job: SavedJob {
                terms,
                ..SavedJob::default()
            },
            clients: clients.into_iter().map(client).collect(),
            files: files
                .into_iter()
                .map(|(path, (bytes, sum))| SavedFile { path, bytes, sum })
                .collect(),
            ..Manifest::default()
        }
    })
}

/// But for the sum, which is made as it is written.
fn bare(manifest: Manifest) -> Manifest {
    Manifest { sum: 0, ..manifest }
}

proptest! {
    #[test]
    fn a_manifest_is_read_back(manifest in manifests()) {
        let read = Manifest::parse(&manifest.text());
        prop_assert_eq!(read.map(bare), Ok(bare(manifest)));
    }

    #[test]
    fn one_changed_byte_is_refused(manifest in manifests(), at: prop::sample::Index, bit in 0_u32..7) {
        let mut text = manifest.text();
        let at = at.index(text.len());
        text[at] ^= 1_u8 << bit;
        if let Ok(read) = Manifest::parse(&text) {
            // A blank more or less between the fields.
            prop_assert_eq!(bare(read), bare(manifest));
        }
    }

    #[test]
    fn garbage_is_an_error_and_no_panic(text in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Manifest::parse(&text).is_err());
    }

    #[test]
    fn a_generations_name_means_its_number(generation in 1_u64..200_000) {
        prop_assert_eq!(generation_of(&generation_name(generation)), Some(generation));
    }
}

fn good() -> Manifest {
    Manifest {
        format: FORMAT,
        generation: 1,
        root: 2,
        ..Manifest::default()
    }
}

fn with_files(paths: &[&str]) -> Manifest {
    let file = |path: &&str| SavedFile {
        path: (*path).to_owned(),
        ..SavedFile::default()
    };
    Manifest {
        files: paths.iter().map(file).collect(),
        ..good()
    }
}

/// Manifests that cannot be, each with the field that says so.
fn wrong() -> Vec<(&'static str, Manifest)> {
    let mut wrong: Vec<(&str, Manifest)> = [vec!["../x"], vec!["/x"], vec!["a//b"], vec!["a", "a"]]
        .iter()
        .map(|paths| ("files", with_files(paths)))
        .collect();
    let (mut number, mut root, mut format) = (good(), good(), good());
    (number.generation, root.root, format.format) = (0, 1, FORMAT + 1);
    wrong.extend([("generation", number), ("root", root), ("format", format)]);
    let (mut owing, mut many) = (good(), good());
    owing.clients.push(SavedClient {
        owed: vec![1],
        ..SavedClient::default()
    });
    many.devices = vec![SavedDevice::default(); 17];
    wrong.extend([("clients", owing), ("devices", many)]);
    for (file, names) in [("a", vec!["../x"]), ("a", vec!["/x"]), ("b", vec!["x"]), ("a", vec![])] {
        let names = names.into_iter().map(str::to_owned).collect();
        let shared = SavedShared {
            file: file.to_owned(),
            names,
            ..SavedShared::default()
        };
        let shared = Shared {
            files: vec![shared],
            ..Shared::default()
        };
        wrong.push((
            "shared",
            Manifest {
                shared,
                ..with_files(&["a"])
            },
        ));
    }
    for (path, copy) in [("log", None), ("/data/../log", None), ("/log", Some("b"))] {
        let file = OpenFile {
            path: path.to_owned(),
            copy: copy.map(str::to_owned),
            ..OpenFile::default()
        };
        let open_files = OpenFiles {
            files: vec![file],
            ..OpenFiles::default()
        };
        let manifest = Manifest {
            open_files,
            ..with_files(&["a"])
        };
        wrong.push(("open_files", manifest));
    }
    wrong
}

/// One of the format before has none of the newer fields, and the sum of what it has.
#[test]
fn a_manifest_of_the_format_before_is_read() {
    for format in 1..FORMAT {
        let older = Manifest { format, ..good() };
        let text = String::from_utf8(older.text()).expect("text");
        assert!(!text.contains("shared") && !text.contains("open_files"), "{text}");
        let read = Manifest::parse(text.as_bytes()).expect("read");
        assert!(read.open_files.is_empty(), "there is nothing to put back");
    }
}

#[test]
fn what_cannot_be_is_refused_by_the_name_of_the_field() {
    for (field, manifest) in wrong() {
        let unfit = Manifest::parse(&manifest.text()).expect_err(field);
        assert_eq!(unfit.field, field, "{unfit}");
    }
    for name in ["gen-1", "gen-00001", "gen-", "gen-x", "0001", ".tmp-gen-0001"] {
        assert_eq!(generation_of(name), None, "{name}");
    }
}

#[test]
fn versions_of_criu_are_compared_as_numbers() {
    for (version, is_good) in [
        ("4.2.1", true),
        ("4.10", true),
        ("5.0", true),
        ("4.1.1", false),
        ("3.17.1", false),
        ("next", false),
    ] {
        assert_eq!(partage_protocol::snapshot::will_do(version), is_good, "{version}");
    }
}

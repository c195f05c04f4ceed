// SPDX-License-Identifier: Apache-2.0
//! Manifests are read back as they were written, and nothing that was changed is believed.

use partage_protocol::snapshot::{
    FORMAT, Manifest, SavedClient, SavedDevice, SavedFile, generation_name, generation_of,
};
use proptest::prelude::*;

fn manifests() -> impl Strategy<Value = Manifest> {
    let clients = prop::collection::vec(
        (2_u32..9, any::<u64>(), prop::collection::vec(any::<u64>(), 0..2)),
        0..4,
    );
    let files = prop::collection::btree_map("[a-z]{1,8}(/[a-z]{1,8})?", (any::<u64>(), any::<u64>()), 0..5);
    (1_u64..99, clients, files, ".{0,20}", any::<u64>()).prop_map(|(generation, clients, files, text, number)| {
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
    fn one_changed_byte_changes_nothing_or_is_refused(manifest in manifests(), at: prop::sample::Index, bit in 0_u32..7) {
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

/// Manifests that cannot be, each with the field that says so.
fn wrong() -> Vec<(&'static str, Manifest)> {
    let good = Manifest {
        format: FORMAT,
        generation: 1,
        root: 2,
        ..Manifest::default()
    };
    let file = |path: &str| SavedFile {
        path: path.to_owned(),
        ..SavedFile::default()
    };
    let owing = SavedClient {
        owed: vec![1],
        ..SavedClient::default()
    };
    vec![
        (
            "generation",
            Manifest {
                generation: 0,
                ..good.clone()
            },
        ),
        (
            "root",
            Manifest {
                root: 1,
                ..good.clone()
            },
        ),
        (
            "clients",
            Manifest {
                clients: vec![owing],
                ..good.clone()
            },
        ),
        (
            "devices",
            Manifest {
                devices: vec![SavedDevice::default(); 17],
                ..good.clone()
            },
        ),
        (
            "files",
            Manifest {
                files: vec![file("../x")],
                ..good.clone()
            },
        ),
        (
            "files",
            Manifest {
                files: vec![file("/x")],
                ..good.clone()
            },
        ),
        (
            "files",
            Manifest {
                files: vec![file("a//b")],
                ..good.clone()
            },
        ),
        (
            "files",
            Manifest {
                files: vec![file("a"), file("a")],
                ..good.clone()
            },
        ),
        (
            "format",
            Manifest {
                format: FORMAT + 1,
                ..good.clone()
            },
        ),
    ]
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

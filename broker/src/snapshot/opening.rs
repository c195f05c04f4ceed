// SPDX-License-Identifier: Apache-2.0
//! The two processes that verify a snapshot for `partage restore`: one all that a restore acts by, before anything is
//! done; the other one the pages, while CRIU reads them too.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use partage_protocol::snapshot::{Manifest, Unfit, generation_name};

use super::files::Disk;
use super::fit::{Here, check};
use super::folder::Folder;
use super::store::{Part, Store};
use super::{dump, last_step};

/// Prints a generation's name and its manifest, or what is wrong with it; of the pages, that they are verified.
/// Precondition: the caller left the descriptor `fd` of the folder open for this process alone.
#[must_use]
pub fn serve(path: &Path, fd: Option<i32>, generation: Option<u64>, part: Part) -> ExitCode {
    let folder = match fd {
        // SAFETY: the precondition.
        Some(fd) => Folder::of(unsafe { OwnedFd::from_raw_fd(fd) }, path),
        None => Folder::open(path),
    };
    let folder = folder.map_err(|why| Unfit::new("folder", why));
    let opened = folder.and_then(|folder| {
        let opened = open(&folder, generation, part);
        opened.map_err(|unfit| Unfit::new(unfit.field, folder.named(&unfit.why)))
    });
    match (opened, part) {
        (Ok(manifest), Part::Small) => {
            println!("{}", generation_name(manifest.generation));
            println!("{}", String::from_utf8_lossy(&manifest.text()));
        }
        (Ok(_), Part::Pages) => println!("{}", last_step::VERIFIED),
        (Err(unfit), _) => {
            eprintln!("{unfit}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn open(folder: &Folder, generation: Option<u64>, part: Part) -> Result<Manifest, Unfit> {
    let (_, manifest) = Store::new(&folder.way(), Disk).open(generation, part)?;
    let here = Here {
        uid: nix::unistd::geteuid().as_raw(),
        processor: dump::processor(),
    };
    check(&manifest, &here).map(|()| manifest)
}

// SPDX-License-Identifier: Apache-2.0
//! What is done with a restored tree before its first instruction: CRIU runs this program while it still holds it.
//!
//! Threads are bound to their processors again, and TCP connections to outside are ended. Last comes the wait for the
//! word that the pages are what was written: another process reads them while CRIU does, and the disk gives them once.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use partage_protocol::snapshot::{BoundThread, Manifest};
use serde::{Deserialize, Serialize};

use super::{bound, sockets};

/// CRIU says by this variable what it is at.
const ACTION: &str = "CRTOOLS_SCRIPT_ACTION";
/// All threads are there, and none runs yet.
const RESTORED: &str = "pre-resume";
/// What this program is told by its environment: a file that says what to do.
pub const WHAT: &str = "PARTAGE_RESTORE_WHAT";

/// What whoever reads the pages says once they are verified.
pub const VERIFIED: &str = "verified";

/// What the last step leaves beside its orders once all is well: without it no tree is restored, whatever CRIU says.
const JUDGED: &str = "judged";

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct What {
    bound: Vec<BoundThread>,
    ended: Vec<(SocketAddr, SocketAddr)>,
    /// A descriptor of the namespace's first process.
    verified: i32,
}

/// Leaves in a folder what there is to do for a snapshot. On the pipe `verified`, a descriptor of the namespace's first
/// process, comes [`VERIFIED`].
///
/// # Errors
/// A sentence.
pub fn leave(manifest: &Manifest, verified: i32, folder: &Path) -> Result<PathBuf, String> {
    let what = What {
        bound: manifest.bound.clone(),
        ended: manifest.sockets.ended.clone(),
        verified,
    };
    let path = folder.join("what.json");
    let text = serde_json::to_vec(&what).map_err(|error| error.to_string())?;
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// Did the last step of the folder's restore say that all is well? It may have been killed.
#[must_use]
pub fn is_done(folder: &Path) -> bool {
    folder.join(JUDGED).exists()
}

/// Waits until the pages are verified. `false`: they are not what was written, or nobody reads them any more.
fn are_verified(pipe: &Path) -> bool {
    let mut word = String::new();
    let read = std::fs::File::open(pipe).and_then(|pipe| BufReader::new(pipe).read_line(&mut word));
    read.is_ok() && word.trim_end() == VERIFIED
}

/// A call of this program by CRIU, as it restores.
#[derive(Debug)]
pub struct Call(Option<PathBuf>);

impl Call {
    /// The call that began this process; none where CRIU did not begin it.
    #[must_use]
    pub fn from_criu() -> Option<Self> {
        let action = std::env::var(ACTION).ok()?;
        let path = std::env::var_os(WHAT)?;
        Some(Self((action == RESTORED).then(|| path.into())))
    }

    /// Does it. A tree with a connection that cannot be ended, or with pages that are damaged, does not begin.
    pub fn serve(&self) {
        let Some(path) = &self.0 else { return };
        let text = std::fs::read(path).ok();
        let what: Option<What> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let is_done = what.is_some_and(|what| {
            what.bound.iter().for_each(bound::bind);
            sockets::end(&what.ended)
                && are_verified(Path::new(&format!("/proc/1/fd/{}", what.verified)))
                && std::fs::write(path.with_file_name(JUDGED), "").is_ok()
        });
        if !is_done {
            // CRIU would go on whatever we say: all of this namespace ends, but for its first process, which says so.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_is_left_is_what_is_read() {
        let scratch = Scratch::new("last-step");
        let bound = BoundThread {
            thread: 7,
            processors: vec![0, 3],
        };
        let manifest = Manifest {
            bound: vec![bound],
            ..Manifest::default()
        };
        let path = leave(&manifest, 104, scratch.path()).expect("written");
        let what: What = serde_json::from_slice(&std::fs::read(path).expect("there")).expect("as written");
        assert_eq!((what.bound, what.ended.len(), what.verified), (manifest.bound, 0, 104));
    }

    #[test]
    fn pages_are_verified_by_the_word_alone() {
        let scratch = Scratch::new("verified");
        let path = scratch.path().join("word");
        for (said, is_enough) in [
            ("verified\n", true),
            ("", false),
            ("veri", false),
            ("no\nverified\n", false),
        ] {
            std::fs::write(&path, said).expect("ours");
            assert_eq!(are_verified(&path), is_enough, "{said:?}");
        }
        assert!(!are_verified(&scratch.path().join("none")));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What is done with a restored tree before its first instruction: CRIU runs this program while it still holds it.
//!
//! Threads are bound to their processors again, and TCP connections to outside are ended.

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

/// What there is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct What {
    bound: Vec<BoundThread>,
    ended: Vec<(SocketAddr, SocketAddr)>,
}

/// Leaves in a folder what there is to do for a snapshot; none where there is nothing.
///
/// # Errors
/// A sentence.
pub fn leave(manifest: &Manifest, folder: &Path) -> Result<Option<PathBuf>, String> {
    let what = What {
        bound: manifest.bound.clone(),
        ended: manifest.sockets.ended.clone(),
    };
    if what == What::default() {
        return Ok(None);
    }
    let path = folder.join("what.json");
    let text = serde_json::to_vec(&what).map_err(|error| error.to_string())?;
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(Some(path))
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

    /// Does it. A tree with a connection that cannot be ended does not begin.
    pub fn serve(&self) {
        let Some(path) = &self.0 else { return };
        let text = std::fs::read(path).ok();
        let what: Option<What> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let is_done = what.is_some_and(|what| {
            what.bound.iter().for_each(bound::bind);
            sockets::end(&what.ended)
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

    #[test]
    fn nothing_is_left_where_there_is_nothing_to_do() {
        let folder = std::env::temp_dir().join(format!("partage-last-step-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let mut manifest = Manifest::default();
        assert_eq!(leave(&manifest, &folder), Ok(None));
        manifest.bound = vec![BoundThread {
            thread: 7,
            processors: vec![0, 3],
        }];
        let path = leave(&manifest, &folder).expect("written").expect("something");
        let what: What = serde_json::from_slice(&std::fs::read(path).expect("there")).expect("as written");
        assert_eq!((what.bound, what.ended.len()), (manifest.bound, 0));
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The parent of a restored tree's first process, by the number that its parent had.
//!
//! A program may take its parent's number for a sign of life: Jupyter's kernel ends when the number changes, or is 1.
//! So between the first process of the namespaces and the tree comes one that has that number, has CRIU restore the
//! tree as its children, waits for the first of them and ends with its code. Nobody in the tree can have the number: at
//! the save it was the parent's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// The number after which the kernel looks for the next process's.
const LAST: &str = "/proc/sys/kernel/ns_last_pid";

/// A tree that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its first process.
    pub root: Pid,
    /// The child of this process that ends with it: itself, or its parent.
    pub child: Pid,
}

/// Has a tree restored by `restore`, which answers its first process, as the child of a process of that number; of this
/// one where that cannot be. In the other process `let_go` comes before the wait.
///
/// # Errors
/// Those of `restore`.
pub fn restore_below(
    number: u32,
    restore: impl FnOnce() -> Result<i32, String>,
    let_go: impl FnOnce(),
) -> Result<Restored, String> {
    let Some((hears, says)) = nix::unistd::pipe2(OFlag::O_CLOEXEC).ok().filter(|_| number > 1) else {
        return directly(restore);
    };
    // SAFETY: this process has one thread, so the child may use everything that the parent may.
    match fork_as(number, || unsafe { fork() }) {
        Some(ForkResult::Child) => {
            drop(hears);
            let code = serve(says, restore, let_go);
            // Nothing of the parent's is to be ended here.
            // SAFETY: takes a number.
            unsafe { libc::_exit(code.into()) }
        }
        Some(ForkResult::Parent { child }) => {
            drop(says);
            let mut said = String::new();
            let _ = File::from(hears).read_to_string(&mut said);
            match said.parse() {
                Ok(root) => Ok(Restored {
                    root: Pid::from_raw(root),
                    child,
                }),
                Err(_) => {
                    let _ = waitpid(child, None);
                    Err(if said.is_empty() {
                        "the parent of the processes died".to_owned()
                    } else {
                        said
                    })
                }
            }
        }
        None => directly(restore),
    }
}

fn directly(restore: impl FnOnce() -> Result<i32, String>) -> Result<Restored, String> {
    let root = Pid::from_raw(restore()?);
    Ok(Restored { root, child: root })
}

/// Forks a process of that number. `None`: it cannot be had, and nothing was forked.
fn fork_as(number: u32, fork: impl FnOnce() -> nix::Result<ForkResult>) -> Option<ForkResult> {
    let before = std::fs::read_to_string(LAST).ok()?;
    std::fs::write(LAST, (number - 1).to_string()).ok()?;
    let forked = fork();
    // Those that come now take none of the tree's numbers, which are mostly the next ones. The new process says so
    // before it starts any; a word of ours could come after that, and between a word of CRIU's and its fork.
    if !matches!(forked, Ok(ForkResult::Parent { .. })) {
        let _ = std::fs::write(LAST, before.trim());
    }
    forked.ok()
}

/// The process: its exit status is that of the tree's first one.
fn serve(says: OwnedFd, restore: impl FnOnce() -> Result<i32, String>, let_go: impl FnOnce()) -> u8 {
    let restored = restore();
    let text = match &restored {
        Ok(root) => root.to_string(),
        Err(why) => why.clone(),
    };
    let is_heard = File::from(says).write_all(text.as_bytes()).is_ok();
    let Some(root) = restored.ok().filter(|_| is_heard) else {
        return 1;
    };
    let_go();
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == root => return u8::try_from(code & 0xff).unwrap_or(1),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == root => return 128 + signal as u8,
            Ok(_) | Err(nix::Error::EINTR) => {}
            // It is not ours.
            Err(_) => return 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_such_a_parent_this_process_is_it() {
        for number in [0, 1] {
            let restored = restore_below(number, || Ok(77), || ());
            let root = Pid::from_raw(77);
            assert_eq!(restored, Ok(Restored { root, child: root }));
            let why = restore_below(number, || Err("no".to_owned()), || ());
            assert_eq!(why, Err("no".to_owned()));
        }
    }
}

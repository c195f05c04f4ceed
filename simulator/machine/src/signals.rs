// SPDX-License-Identifier: Apache-2.0
//! Signals as tests want them: `nohup` and a shell's `&` start a program with some ignored, and what is ignored stays
//! so in every program that it starts; a test that ends a client by SIGINT would then wait for ever.

/// Those that a shell, `nohup` or a service manager may have set to be ignored.
const MAYBE_IGNORED: [libc::c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

extern "C" fn nothing(_: libc::c_int) {}

/// From here on no program that this process starts begins with one of these signals ignored or blocked. This process
/// goes on ignoring what it ignored: by a handler that does nothing, which no `exec` passes on.
pub fn pass_none_on() {
    for signal in MAYBE_IGNORED {
        // SAFETY: zeroed is an empty action; both are ours; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
    // SAFETY: an empty set of ours. The standard library empties the mask of each child; a fork without it does not.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Part of the next test, in a process of its own that was started like one of `nohup`.
    #[test]
    #[ignore = "a process of the next test"]
    fn as_nohup_starts_it() {
        super::pass_none_on();
        let status = Command::new("/bin/grep")
            .args(["-E", "^Sig(Ign|Blk)", "/proc/self/status"])
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    #[test]
    fn a_child_begins_with_no_signal_ignored_or_blocked() {
        let mut command = Command::new(std::env::current_exe().expect("the kernel knows this program"));
        command.args([
            "--exact",
            "signals::tests::as_nohup_starts_it",
            "--ignored",
            "--nocapture",
        ]);
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in super::MAYBE_IGNORED {
                    libc::signal(signal, libc::SIG_IGN);
                }
                Ok(())
            })
        };
        let output = command.output().expect("this program starts again");
        let text = String::from_utf8_lossy(&output.stdout);
        let masks: Vec<u64> = text
            .lines()
            .filter_map(|line| line.split_once("Sig")?.1.split_once('\t'))
            // The standard signals; those above are the C library's own.
            .map(|(_, mask)| u64::from_str_radix(mask.trim(), 16).expect("hexadecimal") & 0x7fff_ffff)
            .collect();
        assert_eq!(masks, [0, 0], "blocked, ignored: {text}");
    }
}

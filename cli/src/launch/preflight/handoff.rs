// SPDX-License-Identifier: Apache-2.0
//! Commands that have other processes do the work: a limit set on them ends with them.
//!
//! The work then runs under a daemon, on another machine, or after a change of identity that empties the environment.
//! Commands that only detach (`nohup`, `setsid`) keep the environment and are not listed.

/// A command that hands its work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOff {
    /// Its name without folder.
    pub name: &'static str,
    /// Who does the work.
    pub why: &'static str,
    /// How the limit gets there.
    pub instead: &'static str,
}

const CONTAINER: &str = "the work runs in a container of another process tree";
const INSIDE: &str = "start partage run inside the container";
const DEVICE: &str = "give it --device partage.dev/share=CLASS (partage cdi generate), or start partage run inside it";
const IDENTITY: &str = "it changes the user and drops the preloaded library";
const REMOTE: &str = "the work runs on another machine";
const QUEUE: &str = "the work runs later, under a scheduler";
const SERVER: &str = "the work runs under a server that may be running already";

const fn row(name: &'static str, why: &'static str, instead: &'static str) -> HandOff {
    HandOff { name, why, instead }
}

/// Sorted by name.
pub const HAND_OFFS: &[HandOff] = &[
    row("apptainer", CONTAINER, INSIDE),
    row("at", QUEUE, "write partage run into the scheduled command"),
    row("batch", QUEUE, "write partage run into the scheduled command"),
    row("bsub", QUEUE, "write partage run into the submitted command"),
    row("buildah", CONTAINER, INSIDE),
    row(
        "bwrap",
        "the work runs with other files, where the library may be missing",
        "start partage run inside",
    ),
    row("byobu", SERVER, "type partage run inside the session"),
    row(
        "chroot",
        "the work runs with other files, where the library may be missing",
        "start partage run inside",
    ),
    row("condor_submit", QUEUE, "write partage run into the submitted command"),
    row("crictl", CONTAINER, INSIDE),
    row("crontab", QUEUE, "write partage run into the scheduled command"),
    row("ctr", CONTAINER, INSIDE),
    row("doas", IDENTITY, "put it first: doas partage run ..."),
    row("docker", CONTAINER, DEVICE),
    row("docker-compose", CONTAINER, INSIDE),
    row("enroot", CONTAINER, INSIDE),
    row("flatpak", CONTAINER, INSIDE),
    row("incus", CONTAINER, INSIDE),
    row("kubectl", REMOTE, INSIDE),
    row("lxc", CONTAINER, INSIDE),
    row("lxc-attach", CONTAINER, INSIDE),
    row("lxc-start", CONTAINER, INSIDE),
    row("machinectl", CONTAINER, INSIDE),
    row("mosh", REMOTE, "put it first: mosh HOST partage run ..."),
    row("nerdctl", CONTAINER, DEVICE),
    row(
        "nsenter",
        "the work runs in another process's namespaces",
        "start partage run inside",
    ),
    row("pkexec", IDENTITY, "put it first: pkexec partage run ..."),
    row("podman", CONTAINER, DEVICE),
    row("podman-compose", CONTAINER, INSIDE),
    row("qsub", QUEUE, "write partage run into the submitted script"),
    row("rsh", REMOTE, "put it first: rsh HOST partage run ..."),
    row("runc", CONTAINER, INSIDE),
    row("runuser", IDENTITY, "put it first: runuser -u USER partage run ..."),
    row("salloc", REMOTE, "put partage run after srun"),
    row("sbatch", QUEUE, "write partage run into the script, after srun"),
    row("screen", SERVER, "type partage run inside the session"),
    row("singularity", CONTAINER, INSIDE),
    row("snap", CONTAINER, INSIDE),
    row("srun", REMOTE, "put it first: srun partage run ..."),
    row("ssh", REMOTE, "put it first: ssh HOST partage run ..."),
    row("su", IDENTITY, "put it first: su -c 'partage run ...'"),
    row("sudo", IDENTITY, "put it first: sudo partage run ..."),
    row("systemd-nspawn", CONTAINER, INSIDE),
    row(
        "systemd-run",
        "the work runs under the system's service manager",
        "put it first: systemd-run partage run ...",
    ),
    row("tmux", SERVER, "type partage run inside the session"),
    row("zellij", SERVER, "type partage run inside the session"),
];

/// The row of a command, by name with or without folder.
pub fn hand_off(command: &str) -> Option<&'static HandOff> {
    let name = command.rsplit('/').next().unwrap_or(command);
    HAND_OFFS
        .binary_search_by(|row| row.name.cmp(name))
        .ok()
        .map(|at| &HAND_OFFS[at])
}

/// A command that only starts another one, in the same process tree and with the same environment.
struct Prefix {
    name: &'static str,
    /// Options whose value is the next word, when not attached.
    value_options: &'static [&'static str],
    /// Words before the command.
    positional: usize,
}

const PREFIXES: &[Prefix] = &[
    Prefix {
        name: "chrt",
        value_options: &["-T", "-P", "-D"],
        positional: 1,
    },
    Prefix {
        name: "ionice",
        value_options: &["-c", "-n"],
        positional: 0,
    },
    Prefix {
        name: "nice",
        value_options: &["-n", "--adjustment"],
        positional: 0,
    },
    Prefix {
        name: "nohup",
        value_options: &[],
        positional: 0,
    },
    Prefix {
        name: "setsid",
        value_options: &[],
        positional: 0,
    },
    Prefix {
        name: "stdbuf",
        value_options: &["-i", "-o", "-e"],
        positional: 0,
    },
    Prefix {
        name: "taskset",
        value_options: &[],
        positional: 1,
    },
    Prefix {
        name: "time",
        value_options: &["-f", "-o"],
        positional: 0,
    },
    Prefix {
        name: "timeout",
        value_options: &["-k", "-s"],
        positional: 1,
    },
];

/// What a command line starts in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// It does the work itself.
    Nothing,
    /// It starts these words.
    Words(Vec<String>),
    /// It starts something with an environment without the library.
    EmptyEnvironment,
}

/// Looks one step behind a launching prefix (`env`, `nice`, …) or `sh -c`.
pub fn behind(words: &[String]) -> Behind {
    let Some((first, rest)) = words.split_first() else {
        return Behind::Nothing;
    };
    let name = first.rsplit('/').next().unwrap_or(first);
    match name {
        "env" => behind_env(rest),
        "sh" | "bash" | "dash" | "zsh" | "ksh" => behind_shell(rest),
        _ => PREFIXES
            .iter()
            .find(|p| p.name == name)
            .map_or(Behind::Nothing, |prefix| {
                let mut words = skip_options(rest, prefix.value_options);
                words.drain(..prefix.positional.min(words.len()));
                if words.is_empty() {
                    Behind::Nothing
                } else {
                    Behind::Words(words)
                }
            }),
    }
}

fn skip_options(words: &[String], value_options: &[&str]) -> Vec<String> {
    let mut rest = words.iter();
    while let Some(word) = rest.as_slice().first() {
        if word == "--" {
            rest.next();
            break;
        }
        if !word.starts_with('-') {
            break;
        }
        rest.next();
        if value_options.contains(&word.as_str()) {
            rest.next();
        }
    }
    rest.cloned().collect()
}

fn behind_env(words: &[String]) -> Behind {
    let mut is_emptied = false;
    let mut rest = words.iter();
    while let Some(word) = rest.as_slice().first() {
        let is_assignment = !word.starts_with('-') && word.contains('=');
        match word.as_str() {
            "-" | "-i" | "--ignore-environment" => is_emptied = true,
            "-u" | "--unset" | "-C" | "--chdir" => {
                rest.next();
                is_emptied |= rest.as_slice().first().is_some_and(|name| name == "LD_PRELOAD");
            }
            "--unset=LD_PRELOAD" | "-uLD_PRELOAD" => is_emptied = true,
            // One string that env itself cuts at blanks; quotes inside are rare in `#!` lines and only cost the look.
            "-S" | "-vS" | "--split-string" => {
                rest.next();
                let mut split: Vec<String> = rest
                    .next()
                    .map(|s| s.split_whitespace().map(str::to_owned).collect())
                    .unwrap_or_default();
                split.extend(rest.cloned());
                return behind_env(&split);
            }
            "--" => {
                rest.next();
                break;
            }
            _ if is_assignment && word.starts_with("LD_PRELOAD=") => is_emptied = true,
            _ if is_assignment || word.starts_with('-') => {}
            _ => break,
        }
        rest.next();
    }
    let rest: Vec<String> = rest.cloned().collect();
    match (rest.is_empty(), is_emptied) {
        (true, _) => Behind::Nothing,
        (false, true) => Behind::EmptyEnvironment,
        (false, false) => Behind::Words(rest),
    }
}

/// The first command of `sh -c '…'`: enough for the usual one-liner, and a shell script is judged while it runs.
fn behind_shell(words: &[String]) -> Behind {
    let is_command = |w: &String| w.starts_with('-') && !w.starts_with("--") && w.ends_with('c');
    let Some(at) = words.iter().position(is_command) else {
        return Behind::Nothing;
    };
    if words[..at].iter().any(|w| !w.starts_with('-')) {
        return Behind::Nothing;
    }
    let Some(line) = words.get(at + 1) else {
        return Behind::Nothing;
    };
    let mut first: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let is_noise = |w: &String| w == "exec" || (w.contains('=') && !w.starts_with('='));
    while first.first().is_some_and(is_noise) {
        first.remove(0);
    }
    match first.first() {
        // Only plain words can be judged; `$(…)`, `{`, `if` are the shell's business.
        Some(word) if word.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c)) => Behind::Words(first),
        _ => Behind::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_unique() {
        assert!(HAND_OFFS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn hand_offs_are_found_with_and_without_folder() {
        for name in [
            "docker",
            "/usr/bin/sudo",
            "srun",
            "tmux",
            "systemd-run",
            "at",
            "zellij",
            "apptainer",
        ] {
            assert!(hand_off(name).is_some(), "{name}");
        }
        for name in ["nohup", "setsid", "python3", "dockerd-x", "", "mpirun", "torchrun"] {
            assert!(hand_off(name).is_none(), "{name}");
        }
    }

    fn behind_of(line: &str) -> Behind {
        behind(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn prefixes_are_looked_behind() {
        let words = |line: &str| Behind::Words(line.split(' ').map(str::to_owned).collect());
        assert_eq!(behind_of("nice -n 5 docker run x"), words("docker run x"));
        assert_eq!(behind_of("timeout -k 5 10 sudo id"), words("sudo id"));
        assert_eq!(behind_of("/usr/bin/env A=1 -u B ssh host"), words("ssh host"));
        assert_eq!(behind_of("env -S python3 -u"), words("python3 -u"));
        assert_eq!(behind_of("taskset -c 0 python"), words("python"));
        assert_eq!(behind_of("env -i python"), Behind::EmptyEnvironment);
        assert_eq!(behind_of("env -u LD_PRELOAD python"), Behind::EmptyEnvironment);
        assert_eq!(behind_of("env LD_PRELOAD= python"), Behind::EmptyEnvironment);
        assert_eq!(behind_of("env -i"), Behind::Nothing);
        assert_eq!(behind_of("python train.py"), Behind::Nothing);
        assert_eq!(behind_of("nice"), Behind::Nothing);
    }

    #[test]
    fn the_first_command_of_a_shell_line_is_seen() {
        let of = |line: &str| behind(&["bash".to_owned(), "-lc".to_owned(), line.to_owned()]);
        let words = |line: &str| Behind::Words(line.split(' ').map(str::to_owned).collect());
        assert_eq!(of("A=1 exec docker run x"), words("docker run x"));
        assert_eq!(of("$(which docker) run"), Behind::Nothing);
        assert_eq!(behind_of("bash script.sh -c docker"), Behind::Nothing);
    }
}

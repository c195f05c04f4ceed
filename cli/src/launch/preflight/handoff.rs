// SPDX-License-Identifier: Apache-2.0
//! Commands that have other processes do the work: a limit set on them ends with them.
//!
//! The work then runs under a daemon, on another machine, or after a change of identity that empties the environment.
//! Commands that only detach (`nohup`, `setsid`) keep the environment and are not listed.

const CONTAINER: &str = "the work runs in a container of another process tree";
const INSIDE: &str = "start partage run inside the container";
const DEVICE: &str = "give it --device partage.dev/share=CLASS (partage cdi generate), or start partage run inside it";
const FILES: &str = "the work runs with other files, where the library may be missing";
const NAMESPACES: &str = "the work runs in another process's namespaces";
const SCHEDULED: &str = "write partage run into the scheduled command";
const SUBMITTED: &str = "write partage run into the submitted command";
const SESSION: &str = "type partage run inside the session";
const IDENTITY: &str = "it changes the user and drops the preloaded library";
const REMOTE: &str = "the work runs on another machine";
const QUEUE: &str = "the work runs later, under a scheduler";
const SERVER: &str = "the work runs under a server that may be running already";
const MANAGER: &str = "the work runs under the system's service manager";

/// Names without folder, who does the work, and how the limit gets there.
const HAND_OFFS: &[(&str, &str, &str)] = &[
    (
        "apptainer buildah crictl ctr docker-compose enroot flatpak",
        CONTAINER,
        INSIDE,
    ),
    (
        "incus lxc lxc-attach lxc-start machinectl podman-compose",
        CONTAINER,
        INSIDE,
    ),
    ("runc singularity snap systemd-nspawn", CONTAINER, INSIDE),
    ("docker nerdctl podman", CONTAINER, DEVICE),
    ("bwrap chroot", FILES, "start partage run inside"),
    ("nsenter", NAMESPACES, "start partage run inside"),
    ("doas", IDENTITY, "put it first: doas partage run ..."),
    ("pkexec", IDENTITY, "put it first: pkexec partage run ..."),
    ("runuser", IDENTITY, "put it first: runuser -u USER partage run ..."),
    ("su", IDENTITY, "put it first: su -c 'partage run ...'"),
    ("sudo", IDENTITY, "put it first: sudo partage run ..."),
    ("kubectl", REMOTE, INSIDE),
    ("mosh", REMOTE, "put it first: mosh HOST partage run ..."),
    ("rsh", REMOTE, "put it first: rsh HOST partage run ..."),
    ("ssh", REMOTE, "put it first: ssh HOST partage run ..."),
    ("salloc", REMOTE, "put partage run after srun"),
    ("srun", REMOTE, "put it first: srun partage run ..."),
    ("at batch crontab", QUEUE, SCHEDULED),
    ("bsub condor_submit", QUEUE, SUBMITTED),
    ("qsub", QUEUE, "write partage run into the submitted script"),
    ("sbatch", QUEUE, "write partage run into the script, after srun"),
    ("byobu screen tmux zellij", SERVER, SESSION),
    ("systemd-run", MANAGER, "put it first: systemd-run partage run ..."),
];

/// Who does the work of a command, named with or without folder, and how the limit gets there.
pub fn hand_off(command: &str) -> Option<(&'static str, &'static str)> {
    let name = basename(command);
    let is_it = |row: &&(&str, &str, &str)| row.0.split(' ').any(|other| other == name);
    HAND_OFFS.iter().find(is_it).map(|&(_, why, instead)| (why, instead))
}

/// A command's name without its folder.
pub fn basename(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

/// Commands that only start another one, in the same process tree and with the same environment: the name, the options
/// whose value is the next word when not attached, and how many words stand before the command.
const PREFIXES: &[(&str, &[&str], usize)] = &[
    ("chrt", &["-T", "-P", "-D"], 1),
    ("ionice", &["-c", "-n"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("taskset", &[], 1),
    ("time", &["-f", "-o"], 0),
    ("timeout", &["-k", "-s"], 1),
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
    let name = basename(first);
    let words = match name {
        "env" => return behind_env(rest),
        "sh" | "bash" | "dash" | "zsh" | "ksh" => return behind_shell(rest),
        _ => PREFIXES
            .iter()
            .find(|(prefix, ..)| *prefix == name)
            .map(|(_, value_options, positional)| {
                let mut words = skip_options(rest, value_options);
                words.drain(..words.len().min(*positional));
                words
            }),
    };
    words
        .filter(|words| !words.is_empty())
        .map_or(Behind::Nothing, Behind::Words)
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
    fn the_table_names_a_command_once() {
        let mut names: Vec<&str> = HAND_OFFS.iter().flat_map(|(names, ..)| names.split(' ')).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        assert_eq!(names.len(), 46);
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

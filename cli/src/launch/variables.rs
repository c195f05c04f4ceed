// SPDX-License-Identifier: Apache-2.0
//! Variables of ours in the caller's environment: empty ones are unset ones, and one that nobody reads is named,
//! because `PARTAGE_MEMORY=8GiB` looks like a limit and is none.

use std::env;
use std::ffi::{OsStr, OsString};

use crate::arguments::TWINS;

/// Read by the library, the broker and the launcher, beside [`TWINS`].
const OTHERS: &str = "\
    PARTAGE_SOCKET_DIR PARTAGE_LIB_DIR PARTAGE_IDLE_EXIT PARTAGE_PID_NAMESPACE PARTAGE_TIME_FAIL PARTAGE_LOG \
    PARTAGE_TOKEN PARTAGE_DEVICES PARTAGE_MEM_BYTES PARTAGE_BROKER PARTAGE_CRIU PARTAGE_STDERR PARTAGE_LAZY_REQUEST";
/// The project's own scripts set or read them, and start `partage` with them in the environment.
const SCRIPTS: &str = "\
    PARTAGE_CUDA_HEADERS PARTAGE_DEMO_PROFILE PARTAGE_DEMO_STEPS PARTAGE_LIBRARY_WITH_SYMBOLS PARTAGE_NVCC \
    PARTAGE_RELEASE_LIBRARY PARTAGE_SEED PARTAGE_SKIP_MUSL PARTAGE_SOAK PARTAGE_TORCH_DEBIAN PARTAGE_TORCH_PYPI";
/// Beginnings of names that simulated machines and the project's own tests have.
const FAMILIES: &[&str] = &["PARTAGE_SIM_", "PARTAGE_TEST_"];
const OURS: &str = "PARTAGE_";

/// Removes our empty variables from this process: scripts clear a variable that way.
///
/// Precondition: this process has one thread.
pub fn forget_empty() {
    let is_empty = |(name, value): &(OsString, OsString)| value.is_empty() && name.to_string_lossy().starts_with(OURS);
    let empty: Vec<OsString> = env::vars_os().filter(is_empty).map(|(name, _)| name).collect();
    for name in empty {
        // SAFETY: nobody reads the environment at the same time, because this process has one thread.
        unsafe { env::remove_var(name) };
    }
}

/// A sentence about each variable of ours that nobody reads.
pub fn unknown() -> Vec<String> {
    let names = env::vars_os().map(|(name, _)| name);
    names.filter_map(|name| sentence(&name)).collect()
}

fn sentence(name: &OsStr) -> Option<String> {
    let name = name.to_str().filter(|name| name.starts_with(OURS))?;
    let others = OTHERS.split(' ').chain(SCRIPTS.split(' '));
    if TWINS.iter().copied().chain(others).any(|known| known == name)
        || FAMILIES.iter().any(|family| name.starts_with(family))
    {
        return None;
    }
    // Whoever misspells a name mostly begins it right; of equals the shortest is the nearest.
    let same = |known: &str| known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    let meant = TWINS
        .iter()
        .max_by_key(|known| (same(known), std::cmp::Reverse(known.len())));
    let meant = meant.filter(|known| same(known) > OURS.len() + 1);
    let meant = meant.map_or(String::new(), |known| format!(" (did you mean {known}?)"));
    Some(format!("{name} is set, but Partage has no such variable{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_nobody_reads_is_named_with_the_one_that_was_meant() {
        let said = |name: &str| sentence(OsStr::new(name));
        assert_eq!(
            said("PARTAGE_MEMORY").as_deref(),
            Some("PARTAGE_MEMORY is set, but Partage has no such variable (did you mean PARTAGE_MEM?)")
        );
        assert_eq!(
            said("PARTAGE_XYZ").as_deref(),
            Some("PARTAGE_XYZ is set, but Partage has no such variable")
        );
        for known in [
            "PARTAGE_MEM",
            "PARTAGE_SIM_FAULTS",
            "PARTAGE_TOKEN",
            "PATH",
            "CUDA_VISIBLE_DEVICES",
        ] {
            assert_eq!(said(known), None, "{known}");
        }
    }

    #[test]
    fn a_script_of_the_project_starts_partage_without_a_word_about_its_own_variables() {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");
        let mut names = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(scripts)
            .expect("the repository has scripts")
            .flatten()
        {
            let Ok(text) = std::fs::read_to_string(entry.path()) else {
                continue;
            };
            let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
            names.extend(
                words
                    .filter(|word| word.len() > OURS.len() && word.starts_with(OURS))
                    .map(str::to_owned),
            );
        }
        assert!(names.contains("PARTAGE_CUDA_HEADERS"), "{names:?}");
        let said: Vec<String> = names.iter().filter_map(|name| sentence(OsStr::new(name))).collect();
        assert_eq!(said, Vec::<String>::new());
    }

    #[test]
    fn every_option_of_run_that_has_a_variable_is_removed_from_the_commands_environment() {
        use clap::CommandFactory;
        let command = crate::arguments::Arguments::command();
        let run = command.find_subcommand("run").expect("run exists");
        let variables: Vec<&OsStr> = run.get_arguments().filter_map(clap::Arg::get_env).collect();
        for name in TWINS {
            assert!(variables.contains(&OsStr::new(name)), "{name} is no variable of run");
        }
        for variable in variables {
            assert!(
                TWINS.iter().any(|name| variable == *name),
                "{variable:?} would reach COMMAND"
            );
        }
    }
}

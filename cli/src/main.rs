// SPDX-License-Identifier: Apache-2.0
//! partage: the command line.
//!
//! `main` is the C one: Rust's own start-up would ignore SIGPIPE and open /dev/null on closed descriptors, and COMMAND
//! of `run` would inherit both. Whatever is open, ignored or blocked when we start is so when COMMAND starts.
#![cfg_attr(not(test), no_main)]
// Unit tests have a main of their own, from which nothing of ours is reached.
#![cfg_attr(test, allow(dead_code))]

mod arguments;
mod commands;
mod failure;
mod help;
mod launch;
mod link;
mod mistakes;
mod show;
mod top;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use arguments::{Arguments, CdiAction, Command, HookAction};
use commands::container::{cdi, hook, register};
use commands::{
    about, broker, config, demo, doctor, events, get, install, man, metrics, ps, queue, quota, residence, run, set,
    sim, snapshot, status, status_check, stop, verify, why,
};
use failure::{Failure, Outcome};
use launch::place::{Host, Place};
use show::report::{self, Report};
use show::{again, terminal};

/// The C entry point.
///
/// # Safety
/// Called once by the C start-up code, with its usual arguments.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: libc::c_int, words: *const *const libc::c_char) -> libc::c_int {
    use std::os::unix::ffi::OsStrExt;
    let count = usize::try_from(count).unwrap_or(0);
    let arguments = (0..count)
        // SAFETY: the kernel gives `count` terminated strings that live as long as the process.
        .map(|i| OsStr::from_bytes(unsafe { std::ffi::CStr::from_ptr(*words.add(i)) }.to_bytes()).to_owned())
        .collect();
    launch::execute::occupy_standard_descriptors();
    launch::variables::forget_empty();
    std::process::exit(i32::from(run_command_line(arguments)))
}

/// Parses, runs, reports; gives the exit code.
fn run_command_line(words: Vec<OsString>) -> u8 {
    let is_launcher = is_launcher(&words);
    let parsed = help::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|matches| Ok((Arguments::from_arg_matches(&matches)?, matches)));
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refuse_arguments(&words, &error, is_launcher),
    };
    let everywhere = &arguments.everywhere;
    let report = Report::new(everywhere.json, everywhere.color, is_launcher);
    // The variable is read here and not by clap, whose usage errors would show it as an option that was typed. An empty
    // variable is an unset one: scripts clear a variable that way.
    let explicit = everywhere
        .socket_dir
        .clone()
        .or_else(|| std::env::var_os("PARTAGE_SOCKET_DIR").map(PathBuf::from))
        .filter(|dir| !dir.as_os_str().is_empty());
    let place = Place::choose(explicit.as_deref(), Host::here());
    match dispatch(&arguments.command, &matches, &place, &report) {
        Ok(code) => code,
        Err(failure) => {
            report.failure(&failure);
            failure.exit_code(is_launcher)
        }
    }
}

fn dispatch(command: &Command, matches: &clap::ArgMatches, place: &Place, report: &Report) -> Outcome<u8> {
    match command {
        Command::Run(arguments) => {
            let sources = matches.subcommand_matches("run").expect("clap parsed `run`");
            run::run(arguments, sources, place, report)
        }
        Command::Ps(arguments) => again::every(arguments.again.seconds, report, |r| ps::ps(arguments, place, r)),
        Command::Status(arguments) if arguments.check => status_check::check(place, report),
        Command::Status(arguments) => again::every(arguments.again.seconds, report, |r| status::status(place, r)),
        Command::Top(arguments) => top::top(arguments, place, report),
        Command::Queue(_) => queue::queue(place, report),
        Command::Set(arguments) => set::set(arguments, place, report),
        Command::Get(arguments) => get::get(arguments, place, report),
        Command::Why(arguments) => why::why(arguments, place, report),
        Command::Stop(arguments) => stop::stop(arguments, place, report),
        Command::Migrate(arguments) => residence::migrate(arguments, place, report),
        Command::Drain(arguments) => residence::drain(arguments, place, report),
        Command::Undrain(arguments) => residence::undrain(arguments, place, report),
        Command::Suspend(arguments) => residence::suspend(arguments, place, report),
        Command::Resume(arguments) => residence::resume(arguments, place, report),
        Command::Checkpoint(arguments) => snapshot::checkpoint(arguments, place, report),
        Command::Restore(arguments) => snapshot::restore(arguments, place, report),
        Command::Broker(arguments) => broker::broker(arguments.action, place, report),
        Command::Config(arguments) => config::config(&arguments.action, place, report),
        Command::Quota(arguments) => quota::quota(&arguments.action, place, report),
        Command::Register(arguments) => {
            let sources = matches.subcommand_matches("register").expect("clap parsed `register`");
            register::register(arguments, sources, place, report)
        }
        Command::Hook(arguments) => {
            let HookAction::CreateRuntime(create) = &arguments.action;
            let sources = matches
                .subcommand_matches("hook")
                .and_then(|hook| hook.subcommand_matches("create-runtime"));
            let sources = sources.expect("clap parsed `hook create-runtime`");
            Ok(hook::create_runtime(create, sources, place, report))
        }
        Command::Cdi(arguments) => {
            let CdiAction::Generate(generate) = &arguments.action;
            cdi::generate(generate, place, report)
        }
        Command::Sim(_) | Command::Install(_) | Command::Uninstall(_) if names_a_socket_dir(matches) => {
            Err(of_another_broker(command))
        }
        Command::Sim(arguments) => sim::sim(arguments, report),
        Command::Install(arguments) => install::install(arguments, report),
        Command::Uninstall(arguments) => install::uninstall(arguments, report),
        Command::Demo(_) => {
            let is_explicit =
                matches.value_source("socket_dir").is_some() || std::env::var_os("PARTAGE_SOCKET_DIR").is_some();
            demo::demo(place, is_explicit, report)
        }
        Command::Doctor(arguments) => doctor::doctor(arguments, place, report),
        Command::Verify(arguments) => verify::verify(arguments, place, report),
        Command::Events(arguments) => events::events(arguments, place, report),
        Command::Metrics(arguments) => metrics::metrics(arguments, place, report),
        Command::Completions(arguments) => about::completions(arguments),
        Command::Man(arguments) => man::write(arguments, report),
        Command::Version(_) => about::version(report),
    }
}

fn names_a_socket_dir(matches: &clap::ArgMatches) -> bool {
    matches.value_source("socket_dir") == Some(clap::parser::ValueSource::CommandLine)
}

/// `--socket-dir` beside a command that has a broker of its own.
fn of_another_broker(command: &Command) -> Failure {
    match command {
        Command::Sim(_) => Failure::invalid("--socket-dir with sim, whose machine has a broker of its own")
            .hint("leave it out; --machine NAME chooses the machine"),
        _ => Failure::invalid("--socket-dir with a broker for every user of this host")
            .hint("leave it out: that broker is at /run/partage"),
    }
}

/// Is this `run`, `restore` or `sim`, whose exit codes leave 0 to 123 to COMMAND? Asked before parsing, so from the
/// words alone.
fn is_launcher(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--color" | "--socket-dir") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            other => return matches!(other, Some("run" | "restore" | "sim")),
        }
    }
    false
}

/// clap's words in our form: one `partage:` line first, then its tip and usage.
fn refuse_arguments(words: &[OsString], error: &clap::Error, is_launcher: bool) -> u8 {
    match error.kind() {
        ErrorKind::DisplayVersion => {
            let _ = error.print();
            return 0;
        }
        ErrorKind::DisplayHelp => {
            show_help(words, error);
            return 0;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            show_help(words, error);
            return 2;
        }
        _ => {}
    }
    let before_command = words.iter().take_while(|word| *word != OsStr::new("--"));
    let is_json = before_command.into_iter().any(|word| word == "--json");
    if let Some(failure) = mistakes::explain(words, error) {
        Report::new(is_json, terminal::ColorChoice::Never, is_launcher).failure(&failure);
        return failure.exit_code(is_launcher);
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    if is_json {
        let first = text.lines().next().unwrap_or_default();
        let failure = Failure::invalid(first).hint("see: partage --help");
        Report::new(true, terminal::ColorChoice::Never, is_launcher).failure(&failure);
    } else {
        report::write_err(&format!("partage: {text}"));
    }
    Failure::invalid("").exit_code(is_launcher)
}

/// `--help` and `partage help` say everything, `-h` what the words are.
fn show_help(words: &[OsString], long: &clap::Error) {
    let short = help::brief().try_get_matches_from(words).err();
    let _ = match short {
        Some(short) if !help::is_long(words) => short.print(),
        _ => long.print(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn launchers_are_recognised_before_parsing() {
        for line in [
            "partage run x",
            "partage --json run",
            "partage --socket-dir d sim --bad",
            "partage --color never run",
        ] {
            assert!(is_launcher(&words(line)), "{line}");
        }
        for line in [
            "partage ps run",
            "partage",
            "partage --socket-dir run ps",
            "partage stop sim",
        ] {
            assert!(!is_launcher(&words(line)), "{line}");
        }
    }

    #[test]
    fn the_arguments_are_consistent() {
        help::command().debug_assert();
    }

    #[test]
    fn options_after_the_command_word_are_the_commands_own() {
        let parsed = |line: &str| {
            help::command().try_get_matches_from(words(line)).map(|m| {
                let Command::Run(run) = Arguments::from_arg_matches(&m).expect("run").command else {
                    panic!("run")
                };
                (run.amounts.mem, run.command)
            })
        };
        let (mem, command) = parsed("partage run -m 25% python -m x --json").expect("parses");
        assert_eq!((mem.as_deref(), command), (Some("25%"), words("python -m x --json")));
        let (_, command) = parsed("partage run -- -m x").expect("parses");
        assert_eq!(command, words("-m x"));
        assert!(parsed("partage run -m 25%").is_err());
    }
}

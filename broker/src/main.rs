// SPDX-License-Identifier: Apache-2.0
//! partaged: the per-node broker. Arguments, wiring, exit codes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Parser};
use partage_broker::clock::now;
use partage_broker::config::{Config, SYSTEM_FILE, unknown_groups};
use partage_broker::driver::state_driver::{Parts, StateDriver};
use partage_broker::error::Error;
use partage_broker::helper::process::User;
use partage_broker::history::{Files, HISTORY_BYTES, HISTORY_BYTES_PRIVATE, History};
use partage_broker::host::checkpoint::CheckpointHelpers;
use partage_broker::host::nvml::{self, Nvml};
use partage_broker::host::proc::Proc;
use partage_broker::host::user_database::{self, UserHelper};
use partage_broker::host::{checkpoint, inherited};
use partage_broker::kind::Kind;
use partage_broker::metrics::Listener;
use partage_broker::server::event_loop::{Server, block_signals};
use partage_broker::server::given;
use partage_broker::server::limits::raise_descriptor_limit;
use partage_broker::snapshot::store::Part;
use partage_broker::snapshot::{dump, inside, last_step, open_files, opening, restore, shared};
use partage_broker::state::directory::SocketDir;
use partage_broker::watch::program::Program;
use partage_broker::watch::services::{Service, Services};
use partage_broker::watch::watchdog::Watchdog;
use partage_broker::watch::{log, notify};
use partage_protocol::units::SECOND_NS;
use tracing::{info, warn};

/// A private broker leaves this long after its last job.
const IDLE_EXIT_SECONDS: u64 = 60;

/// The Partage broker. It holds the jobs and quotas of one user (--private) or of the host (--managed).
#[derive(Debug, Parser)]
#[command(name = "partaged", version = concat!(env!("PARTAGE_VERSION"), " (", env!("PARTAGE_COMMIT"), ")"))]
#[command(group(ArgGroup::new("kind").required(true).args([
    "private",
    "managed",
    "nvml_helper",
    "checkpoint_helper",
    "dump_helper",
    "criu_dump",
    "restore_helper",
    "restore_files",
    "open_snapshot",
    "user_helper",
    "check",
])))]
struct Arguments {
    /// Serve the user who starts it; leave when idle
    #[arg(long)]
    private: bool,
    /// Serve the host
    #[arg(long)]
    managed: bool,
    /// Directory of sockets, log and state [default: /run/partage when managed, else /tmp/partage-UID]
    #[arg(long, value_name = "DIR", env = "PARTAGE_SOCKET_DIR")]
    socket_dir: Option<PathBuf>,
    /// Leave after so many seconds without a job [default: 60 when private, else never]
    #[arg(long, value_name = "SECONDS", env = "PARTAGE_IDLE_EXIT")]
    idle_exit: Option<u64>,
    /// Serve from inside a pid namespace, too: processes outside it cannot be told apart, and are refused
    #[arg(
        long,
        value_name = "first|any",
        env = "PARTAGE_PID_NAMESPACE",
        default_value = "first"
    )]
    pid_namespace: PidNamespace,
    /// Write the log to stderr too
    #[arg(long)]
    foreground: bool,
    /// error, warn, info, debug or trace [default: as configured, else info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Configuration of a managed broker
    #[arg(long, value_name = "FILE", default_value = SYSTEM_FILE)]
    config: PathBuf,
    /// Read these files as one configuration, say what is wrong with it, and serve nobody
    #[arg(long, value_name = "FILE", num_args = 0..)]
    check: Option<Vec<PathBuf>>,
    /// Talk to NVML for a broker at the other end of standard input
    #[arg(long, hide = true)]
    nvml_helper: bool,
    /// Make the driver's checkpoint calls for a broker at the other end of standard input
    #[arg(long, hide = true)]
    checkpoint_helper: bool,
    /// Have CRIU dump a job: the order's file, and the outcome's
    #[arg(long, hide = true, num_args = 2, value_name = "FILE")]
    dump_helper: Option<Vec<PathBuf>>,
    /// Become CRIU, which dumps a job
    #[arg(long, hide = true, value_name = "ORDER")]
    criu_dump: Option<String>,
    /// Have CRIU restore a job, as the first process of its namespaces
    #[arg(long, hide = true, value_name = "ORDER")]
    restore_helper: Option<String>,
    /// Look after the files that a snapshot's job writes: an order; the answer is printed
    #[arg(long, hide = true, value_name = "ORDER")]
    restore_files: Option<String>,
    /// Verify a snapshot but for its pages, and print its manifest, with its folder
    #[arg(long, hide = true, value_name = "DIR")]
    open_snapshot: Option<PathBuf>,
    /// With --open-snapshot: a descriptor of that folder, which was opened already
    #[arg(long, hide = true, value_name = "FD", requires = "open_snapshot")]
    folder_fd: Option<i32>,
    /// With --open-snapshot: which one
    #[arg(long, hide = true, value_name = "N")]
    generation: Option<u64>,
    /// With --open-snapshot: verify its pages, and say so
    #[arg(long, hide = true, requires = "open_snapshot")]
    pages: bool,
    /// Ask the user database for a broker at the other end of standard input
    #[arg(long, hide = true)]
    user_helper: bool,
    /// With --checkpoint-helper: the user whose process it becomes, `UID:GID:GROUP,…`
    #[arg(long = "as", hide = true, value_name = "USER", requires = "checkpoint_helper")]
    user: Option<String>,
    /// With a helper: where a command found the driver's libraries
    #[arg(long, hide = true, value_name = "FILE")]
    driver_file: Option<PathBuf>,
}

fn main() -> ExitCode {
    // CRIU gives no arguments to what it calls.
    if let Some(call) = last_step::Call::from_criu() {
        call.serve();
        return ExitCode::SUCCESS;
    }
    if let Some(call) = shared::Call::from_criu() {
        return match call.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let arguments = Arguments::parse();
    if arguments.nvml_helper {
        nvml::serve(arguments.driver_file.as_deref());
        return ExitCode::SUCCESS;
    }
    if arguments.checkpoint_helper {
        if let Some(user) = &arguments.user
            && User::parse(user).is_none_or(|user| user.become_it().is_err())
        {
            return ExitCode::FAILURE;
        }
        checkpoint::serve(arguments.driver_file.as_deref());
        return ExitCode::SUCCESS;
    }
    if let Some([order, outcome]) = arguments.dump_helper.as_deref() {
        dump::serve(order, outcome);
        return ExitCode::SUCCESS;
    }
    if let Some(order) = &arguments.criu_dump {
        inside::serve(order);
        return ExitCode::FAILURE;
    }
    if let Some(order) = &arguments.restore_helper {
        return restore::serve(order);
    }
    if let Some(order) = &arguments.restore_files {
        let answer = open_files::order::serve(order);
        // Numbers and texts have a text.
        println!("{}", serde_json::to_string(&answer).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = &arguments.open_snapshot {
        let part = if arguments.pages { Part::Pages } else { Part::Small };
        return opening::serve(folder, arguments.folder_fd, arguments.generation, part);
    }
    if arguments.user_helper {
        user_database::serve();
        return ExitCode::SUCCESS;
    }
    if let Some(files) = &arguments.check {
        return check(files, &arguments.config);
    }
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("partaged: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Says whether these files, or the host's, are a configuration.
fn check(files: &[PathBuf], system: &Path) -> ExitCode {
    let config = match files {
        [] => Config::load(system),
        files => Config::read(files),
    };
    match config {
        Ok(config) => {
            let mut warnings = config.policy.rules.warnings();
            warnings.extend(unknown_groups(&config.policy.rules));
            warnings.extend(config.metrics.warning());
            warnings.iter().for_each(|text| println!("warning: {text}"));
            println!("ok: {}", config.counts());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Error> {
    let kind = if arguments.managed {
        Kind::Managed
    } else {
        Kind::Private
    };
    if kind == Kind::Managed && arguments.pid_namespace == PidNamespace::First && !is_in_first_pid_namespace() {
        return Err(Error::PidNamespace);
    }
    // What a user's broker makes is for that user; modes that others need are set one by one.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let config = match kind {
        Kind::Managed => Config::load(&arguments.config)?,
        Kind::Private => Config::default(),
    };
    let path = arguments.socket_dir.clone().unwrap_or_else(|| default_directory(kind));
    // A service manager's limits are meant; the first shell's are not meant for all later jobs.
    let notes = if kind == Kind::Private {
        inherited::shed()
    } else {
        Vec::new()
    };
    let directory = SocketDir::prepare(&path, kind)?;
    // A private broker is nobody's service: what its variables say is its starter's.
    let given = match kind {
        Kind::Managed => given::take(&directory)?,
        Kind::Private => None,
    };
    let Some(_lock) = directory.lock()? else {
        // Somebody else's broker serves here already: what the starter wanted.
        return Ok(());
    };
    let level = arguments.log_level.as_deref().unwrap_or(&config.log_level);
    log::start(&directory.log_file(), level, config.log_size, arguments.foreground)?;
    let descriptors = raise_descriptor_limit();
    let version = concat!(env!("PARTAGE_VERSION"), " (", env!("PARTAGE_COMMIT"), ")");
    info!(version, kind = kind.word(), directory = %directory.path().display(), descriptors, "starting");
    notes.iter().for_each(|note| warn!(note, "inherited"));
    let services = Arc::new(Services::default());
    let (metrics, metrics_error) = Listener::bind(&config.metrics);
    services.set(Service::Metrics, metrics_error);
    let (history, first_event) = history(&directory, &config, &services)?;
    let private_exit = (kind == Kind::Private).then_some(IDLE_EXIT_SECONDS);
    let parts = Parts {
        directory: directory.clone(),
        config,
        config_file: (kind == Kind::Managed).then(|| arguments.config.clone()),
        processes: Box::new(Proc),
        random,
        notes,
        services,
        first_event,
        idle_exit_ns: arguments
            .idle_exit
            .or(private_exit)
            .map(|seconds| seconds.saturating_mul(SECOND_NS)),
    };
    let driver = StateDriver::start(parts, now())?;
    let (gpu, helpers) = helpers(&directory)?;
    let server = Server::new(driver, gpu, helpers, history, &directory, given)?;
    if let Some(metrics) = metrics {
        metrics.start(directory.admin_socket());
    }
    if let Err(error) = notify::notify(std::env::var_os("NOTIFY_SOCKET"), "READY=1") {
        warn!(%error, "the service manager was not told");
    }
    let result = server.run(Watchdog::asked());
    info!("left");
    result
}

/// In which pid namespace a managed broker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PidNamespace {
    /// The machine's first one alone: every process can be seen from there.
    First,
    /// Whichever it is started in.
    Any,
}

/// Can every process of the machine be seen from here? Where the kernel does not say, it counts as so.
fn is_in_first_pid_namespace() -> bool {
    /// `PID_NS_INIT_INO` of <linux/nsfs.h>: the number of the first pid namespace on every kernel.
    const FIRST: u64 = 0xEFFF_FFFC;
    std::fs::metadata("/proc/self/ns/pid").map_or(true, |namespace| namespace.ino() == FIRST)
}

/// Events of earlier brokers, and the number of the next one.
fn history(directory: &SocketDir, config: &Config, services: &Arc<Services>) -> Result<(History, u64), Error> {
    // Before the first thread.
    block_signals()?;
    let folder = events_folder(directory);
    let files = Files::open(&folder, most_bytes(directory.kind()));
    let first_event = files.as_ref().map_or(1, Files::next_number);
    let program = Program::start(&config.notify, Arc::clone(services))?;
    let history = History::start((&folder, files), program, Arc::clone(services))?;
    Ok((history, first_event))
}

/// Those that call the driver, and the one that asks the user database.
fn helpers(directory: &SocketDir) -> Result<(Nvml, (CheckpointHelpers, UserHelper)), Error> {
    // A host's broker is told nothing by its users.
    let driver_file = (directory.kind() == Kind::Private).then(|| directory.driver_file());
    let gpu = Nvml::new(nvml::helper_command(driver_file.as_deref()))?;
    let helpers = CheckpointHelpers::new(checkpoint::helper_command(driver_file.as_deref()))?;
    let user_helper = UserHelper::new(user_database::helper_command())?;
    Ok((gpu, (helpers, user_helper)))
}

/// Where events stay. A host's last longer than `/run`, which is empty after a start of the machine.
fn events_folder(directory: &SocketDir) -> PathBuf {
    let is_the_hosts = directory.kind() == Kind::Managed && directory.path() == default_directory(Kind::Managed);
    match is_the_hosts {
        true => PathBuf::from("/var/lib/partage/events"),
        false => directory.events(),
    }
}

fn most_bytes(kind: Kind) -> u64 {
    match kind {
        Kind::Private => HISTORY_BYTES_PRIVATE,
        Kind::Managed => HISTORY_BYTES,
    }
}

fn default_directory(kind: Kind) -> PathBuf {
    match kind {
        Kind::Managed => Path::new("/run/partage").to_owned(),
        Kind::Private => PathBuf::from(format!("/tmp/partage-{}", nix::unistd::geteuid())),
    }
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and length are those of a live, writable slice.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        // Tokens made of anything else could be guessed; without the kernel's there is no broker.
        assert!(count > 0 || std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted);
        filled += usize::try_from(count).unwrap_or(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_manual_page_has_every_option_that_help_shows() {
        let page = include_str!("../../cli/src/commands/partaged.8");
        let command = Arguments::command();
        let shown = command.get_arguments().filter(|option| !option.is_hide_set());
        let names: Vec<&str> = shown.filter_map(clap::Arg::get_long).collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            let written = format!("\\-\\-{}", name.replace('-', "\\-"));
            assert!(page.contains(&written), "--{name}");
        }
    }
}

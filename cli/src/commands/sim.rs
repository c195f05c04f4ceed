// SPDX-License-Identifier: Apache-2.0
//! `partage sim`: run COMMAND on a simulated machine, made by the first and removed by the last that uses it.
//!
//! A machine is the folder `/tmp/partage-sim-UID/NAME`. Every `partage sim` in it holds a shared lock on `.NAME.lock`
//! while COMMAND runs; making, joining and leaving happen under an exclusive lock on `.NAME.gate`, so nobody joins a
//! machine that is being removed. A machine whose `partage sim` were all killed is found by its free lock and made
//! anew.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use partage_machine::machine::{NODES, node};
use partage_machine::{Machine, MachineCode, Spec, id_of};
use partage_protocol::size::{Amount, SizeError, format_bytes, parse_amount};

use crate::arguments::Sim;
use crate::commands::broker;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::command::Command;
use crate::launch::environment::forget_job;
use crate::launch::execute::Environment;
use crate::launch::installed;
use crate::launch::launch_broker::open_own;
use crate::launch::library_copy;
use crate::launch::nested;
use crate::launch::place::{self, Place, Rule};
use crate::launch::preflight::find::find;
use crate::launch::supervise;
use crate::link::silence;
use crate::show::report::{self, Report};

mod cuda_runtime;

use cuda_runtime::Providers;

/// `partage sim`: gives COMMAND's code.
pub fn sim(arguments: &Sim, report: &Report) -> Outcome<u8> {
    check_name(&arguments.machine)?;
    if let Some(gpus) = &arguments.mounts {
        return mounts(&arguments.machine, gpus);
    }
    let memory = memory(arguments)?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = vec![shell.unwrap_or_else(|| "/bin/sh".into())];
    let is_shell = arguments.command.is_empty();
    let command = Command::find(if is_shell { &shell } else { &arguments.command })?;
    if let Some(job) = nested::enclosing_job(&Place::of_environment())? {
        let message = format!("sim inside {}: its programs would leave the job's limit", job.job);
        return Err(Failure::invalid(message).hint("the other way round: partage sim -- partage run ..."));
    }
    let driver = installed::find(installed::SIM_DRIVER)?;
    let nvml = installed::find(installed::SIM_NVML)?;
    let providers = arguments.cuda_runtime.then(Providers::find).transpose()?;
    let root = PathBuf::from(format!("/tmp/partage-sim-{}", Uid::effective()));
    let visit = Visit::take(&root, arguments, memory, &driver, &nvml)?;
    if let Some(providers) = &providers
        && let Err(failure) = visit.offer_runtime(providers)
    {
        // The machine goes with its last visit.
        let _ = visit.leave();
        return Err(failure);
    }
    let mut environment = environment(command.environment.clone(), &root, &visit.dir);
    if arguments.nvrtc_ptx {
        environment.put_first("LD_PRELOAD", &installed::find(installed::SIM_NVRTC)?, b": ", |entry| {
            entry.ends_with(installed::SIM_NVRTC)
        });
    }
    if arguments.cuda_runtime {
        cuda_runtime::offer(&mut environment, &root, &visit.dir);
        report.say(cuda_runtime::SAID);
    }
    if is_shell {
        report.say(&visit.welcome(&arguments.machine));
    }
    let code = supervise::run(&command.file, &command.words, &environment);
    // COMMAND's code matters more than a folder that could not be removed.
    if let Err(failure) = visit.leave() {
        report.say(&failure.sentence());
    }
    code
}

/// This process's part in a machine.
struct Visit {
    dir: PathBuf,
    lock: Flock<File>,
    lock_path: PathBuf,
    gate_path: PathBuf,
}

impl Visit {
    /// Makes the machine, or joins it while it lives.
    fn take(root: &Path, arguments: &Sim, memory: Option<u64>, driver: &Path, nvml: &Path) -> Outcome<Self> {
        let gate_path = root.join(format!(".{}.gate", arguments.machine));
        let _gate = gate(&gate_path)?;
        let dir = root.join(&arguments.machine);
        let lock_path = root.join(format!(".{}.lock", arguments.machine));
        let free = Flock::lock(open_own(&lock_path, false)?, FlockArg::LockExclusiveNonblock);
        let file = match free {
            Ok(lock) => {
                clear(&dir)?;
                make(&dir, arguments, memory, driver, nvml)?;
                if arguments.shared {
                    // Other users reach it through the folder of all machines; those that are not shared stay shut.
                    let opened = fs::set_permissions(root, Permissions::from_mode(0o711));
                    opened.map_err(|error| Failure::cannot("open up", root, error))?;
                }
                lock.unlock()
                    .map_err(|(_, errno)| Failure::cannot("lock", &lock_path, errno))?
            }
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
                check_same(&dir, arguments, memory)?;
                file
            }
            Err((_, errno)) => return Err(Failure::cannot("lock", &lock_path, errno)),
        };
        let lock =
            Flock::lock(file, FlockArg::LockShared).map_err(|(_, errno)| Failure::cannot("lock", &lock_path, errno))?;
        Ok(Self {
            dir,
            lock,
            lock_path,
            gate_path,
        })
    }

    /// Makes the stand-ins for the CUDA runtime, unless the machine has them.
    fn offer_runtime(&self, providers: &Providers) -> Outcome<()> {
        let _gate = gate(&self.gate_path)?;
        cuda_runtime::make(&self.dir, providers)
    }

    /// What a shell on the machine begins with.
    fn welcome(&self, name: &str) -> String {
        let gpus = Machine::open(&self.dir);
        let gpus = gpus.map_or(String::new(), |machine| format!(" with {}", gpus_text(&machine)));
        format!("this is a shell on the simulated machine {name}{gpus}; `exit` leaves it")
    }

    /// Removes the machine when nobody else is in it.
    fn leave(self) -> Outcome<()> {
        let _gate = gate(&self.gate_path)?;
        let Ok(file) = self.lock.unlock() else { return Ok(()) };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(_last) => {
                clear(&self.dir)?;
                // The gate last, while it is held: who waits for it sees that it is gone and makes a new one.
                let _ = fs::remove_file(&self.lock_path).and_then(|()| fs::remove_file(&self.gate_path));
                // The folder of all machines, when this was the last of them; else it is not empty.
                let _ = self.gate_path.parent().map(fs::remove_dir);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}

fn make(dir: &Path, arguments: &Sim, memory: Option<u64>, driver: &Path, nvml: &Path) -> Outcome<()> {
    let mut spec = Spec::new(
        arguments.gpus.unwrap_or(2) as usize,
        arguments.profile.as_deref().unwrap_or("h200"),
        memory,
    );
    // The same UUIDs whenever a machine of this name is made.
    spec.id = id_of(&arguments.machine);
    spec.machine_code = asked_machine_code(arguments).unwrap_or_default();
    spec.allow_overcommit = arguments.overcommit;
    let made = Machine::create(dir, &spec).and_then(|machine| {
        Machine::link_libraries(dir, driver, nvml)?;
        if arguments.shared {
            machine.open_to_all()
        } else {
            Ok(())
        }
    });
    made.map_err(|error| {
        let _ = fs::remove_dir_all(dir);
        Failure::failed(format!("cannot make the simulated machine: {error}"))
    })
}

/// Prints the options of `podman run` that give a container the running machine.
fn mounts(name: &str, gpus: &str) -> Outcome<u8> {
    let dir = PathBuf::from(format!("/tmp/partage-sim-{}", Uid::effective())).join(name);
    let machine = Machine::open(&dir).map_err(|error| {
        Failure::new(
            Kind::NoTarget,
            format!("no simulated machine {name} is running: {error}"),
        )
        .hint(format!("start it first: partage sim --machine {name}"))
    })?;
    let count = machine.devices().len();
    let chosen = gpus.split(',').filter(|word| !word.is_empty()).map(|word| {
        let number = word.trim().parse::<usize>().ok().filter(|number| *number < count);
        number.ok_or_else(|| {
            let message = format!(
                "--mounts: {word:?} is no GPU of the machine {name}, which has 0 to {}",
                count - 1
            );
            Failure::invalid(message)
        })
    });
    let chosen: Vec<usize> = chosen.collect::<Outcome<_>>()?;
    let mut lines = vec![format!("--volume={0}:{0}", dir.display())];
    // The libraries are links to files elsewhere.
    let mut files: Vec<PathBuf> = Vec::new();
    for link in fs::read_dir(dir.join("lib")).into_iter().flatten().flatten() {
        if let Ok(file) = link.path().canonicalize()
            && !file.starts_with(&dir)
            && !files.contains(&file)
        {
            files.push(file);
        }
    }
    files.sort();
    lines.extend(files.iter().map(|file| format!("--volume={0}:{0}:ro", file.display())));
    if !chosen.is_empty() {
        lines.push(format!("--tmpfs={}", dir.join(NODES).display()));
        lines.extend(chosen.into_iter().map(|device| {
            let node = node(&dir, device);
            format!("--volume={0}:{0}", node.display())
        }));
    }
    lines.push(format!("--env=PARTAGE_SIM_DIR={}", dir.display()));
    lines.push(format!("--env=LD_LIBRARY_PATH={}", dir.join("lib").display()));
    report::write_out(&(lines.join("\n") + "\n"));
    Ok(0)
}

fn asked_machine_code(arguments: &Sim) -> Option<MachineCode> {
    arguments.machine_code.as_deref().map(|asked| match asked {
        "no-op" => MachineCode::NoOp,
        _ => MachineCode::Refuse,
    })
}

/// Ends the broker of a machine that nobody uses, and removes its folder.
fn clear(dir: &Path) -> Outcome<()> {
    if dir.symlink_metadata().is_err() {
        return Ok(());
    }
    // A broker that does not end finds its folder gone; that must not keep the machine from being removed.
    let _ = broker::stop(&Place {
        dir: dir.join("broker"),
        rule: Rule::Private,
    });
    fs::remove_dir_all(dir).map_err(|e| Failure::cannot("remove the simulated machine", dir, e))
}

/// Refuses to join a living machine that is not what was asked.
fn check_same(dir: &Path, arguments: &Sim, memory: Option<u64>) -> Outcome<()> {
    let machine = Machine::open(dir)
        .map_err(|e| Failure::failed(format!("cannot join the simulated machine {}: {e}", arguments.machine)))?;
    let devices = machine.devices();
    let spec = machine.spec();
    let refuse = |what: String, hint: &str| {
        let message = format!("the simulated machine {} is alive and {what}", arguments.machine);
        Err(Failure::invalid(message).hint(format!("join it without {hint}, or give --machine NAME")))
    };
    if asked_machine_code(arguments).is_some_and(|asked| spec.machine_code != asked) {
        return refuse("treats machine code otherwise".to_owned(), "--machine-code");
    }
    if arguments.overcommit && !spec.allow_overcommit {
        return refuse("promises no more than the file system holds".to_owned(), "--overcommit");
    }
    let has_count = arguments.gpus.is_none_or(|gpus| gpus as usize == devices.len());
    let has_memory = memory.is_none_or(|bytes| devices.iter().all(|device| device.memory == bytes));
    let asked = arguments.profile.as_ref();
    let has_profile = asked.is_none_or(|asked| spec.devices.iter().all(|device| device.profile == *asked));
    if has_count && has_memory && has_profile {
        return Ok(());
    }
    let what = format!("with {}, and another was asked", gpus_text(&machine));
    let message = format!("the simulated machine {} is alive {what}", arguments.machine);
    Err(Failure::invalid(message).hint("join it without --gpus, --memory and --profile, or give --machine NAME"))
}

/// `2 × h200 of 141 GiB`.
fn gpus_text(machine: &Machine) -> String {
    let devices = machine.devices();
    let memory = devices.first().map_or(0, |device| device.memory);
    let profile = machine
        .spec()
        .devices
        .first()
        .map_or("", |device| device.profile.as_str());
    format!("{} × {profile} of {}", devices.len(), format_bytes(memory))
}

/// What makes a program use this machine and no other.
fn environment(mut environment: Environment, root: &Path, dir: &Path) -> Environment {
    let is_simulated = |entry: &str| Path::new(entry).starts_with(root);
    environment.put_first("LD_LIBRARY_PATH", &dir.join("lib"), b":;", is_simulated);
    environment.set("PARTAGE_SIM_DIR", dir);
    environment.set("PARTAGE_SOCKET_DIR", dir.join("broker"));
    // Left over from a job that has ended (in a living one we would not be here).
    forget_job(&mut environment);
    cuda_runtime::forget(&mut environment, root);
    if let Some(held) = environment
        .get("LD_PRELOAD")
        .map(|held| held.to_string_lossy().into_owned())
    {
        let entries = held.split([':', ' ']).filter(|entry| !entry.is_empty());
        let kept: Vec<&str> = entries.filter(|entry| !library_copy::is_ours(entry)).collect();
        match kept.as_slice() {
            [] => environment.remove("LD_PRELOAD"),
            kept => environment.set("LD_PRELOAD", kept.join(":")),
        }
    }
    // So that `partage sim -- bash` finds `partage` in a build tree too.
    let path = environment.get("PATH").map(ToOwned::to_owned).unwrap_or_default();
    if find("partage".as_ref(), Some(&path)).is_err()
        && let Some(own) = std::env::current_exe().ok().as_deref().and_then(Path::parent)
    {
        let mut longer = path;
        longer.push(":");
        longer.push(own);
        environment.set("PATH", longer);
    }
    environment
}

fn memory(arguments: &Sim) -> Outcome<Option<u64>> {
    let Some(text) = &arguments.memory else { return Ok(None) };
    match parse_amount(text) {
        Ok(Amount::Bytes(bytes)) => Ok(Some(bytes)),
        Ok(Amount::Share(_)) => Err(Failure::invalid(format!(
            "--memory: {text} of what? use a size, e.g. --memory 16GiB"
        ))),
        // No percentage is meant here: there is no device yet whose part it could be.
        Err(SizeError::NoUnit { value, meant }) => {
            let size = meant.rsplit(" or ").next().filter(|size| !size.ends_with('%'));
            let meant = size.unwrap_or("16GiB");
            Err(Failure::invalid(format!(
                "--memory: {value} has no unit: did you mean {meant}?"
            )))
        }
        Err(error) => Err(Failure::invalid(format!("--memory: {error}"))),
    }
}

/// The socket of its broker must fit the 107 bytes of a unix address.
const LONGEST_NAME: usize = 32;

fn check_name(name: &str) -> Outcome<()> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_inner) && name.len() <= LONGEST_NAME
    {
        return Ok(());
    }
    let message = match name.len() {
        0..=LONGEST_NAME => {
            format!("--machine: bad name {name:?} (use letters, digits, '.', '_' and '-'; at most {LONGEST_NAME})")
        }
        long => format!("--machine: a name has {LONGEST_NAME} characters at most, and this one {long}: {name}"),
    };
    Err(Failure::invalid(message))
}

/// Longer than ending a broker takes.
const GATE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// How often the folder may go between its making and the opening of a file in it.
const GATE_TRIES: u32 = 100;

fn gate(path: &Path) -> Outcome<Flock<File>> {
    let mut tries = 0;
    loop {
        let doing = "making or removing the simulated machine";
        // The last machine takes the folder of all machines along.
        let opened = path
            .parent()
            .map_or(Ok(()), place::make_own_dir)
            .and_then(|()| open_own(path, false));
        let file = match opened {
            Err(_) if tries < GATE_TRIES && path.parent().is_some_and(|root| !root.exists()) => {
                tries += 1;
                continue;
            }
            opened => opened?,
        };
        let gate = silence::lock(file, path, GATE_PATIENCE, doing)?;
        // The last one out may have removed the file while we waited for its lock.
        let inode = |data: std::io::Result<fs::Metadata>| data.map(|data| data.ino()).ok();
        if inode(path.symlink_metadata()) == inode(gate.metadata()) {
            return Ok(gate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn machine_names_stay_in_their_folder() {
        for good in ["default", "t1234", "a.b-c_d", "4"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "../x", "a/b", ".gate", &"a".repeat(33)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        let said = check_name(&"a".repeat(33)).expect_err("too long").sentence();
        assert!(said.contains("32 characters at most") && said.contains("33"), "{said}");
    }

    #[test]
    fn a_program_in_the_machine_sees_nothing_of_another() {
        let mut outer = Environment::default();
        let root = Path::new("/tmp/partage-sim-1");
        for (name, value) in [
            ("LD_LIBRARY_PATH", "/tmp/partage-sim-1/other/lib:/opt/lib"),
            ("LD_PRELOAD", "/x/libpartage-1-0.so:/y.so"),
            ("PARTAGE_TOKEN", "old"),
        ] {
            outer.set(name, value);
        }
        let inner = environment(outer, root, Path::new("/tmp/partage-sim-1/m"));
        let of = |name| inner.get(name).map(OsStr::to_string_lossy);
        assert_eq!(
            of("LD_LIBRARY_PATH").as_deref(),
            Some("/tmp/partage-sim-1/m/lib:/opt/lib")
        );
        assert_eq!(of("LD_PRELOAD").as_deref(), Some("/y.so"));
        assert_eq!(of("PARTAGE_TOKEN"), None);
        assert_eq!(of("PARTAGE_SOCKET_DIR").as_deref(), Some("/tmp/partage-sim-1/m/broker"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! `partage verify`: shows that a limit bites where a wrapper puts a program, by a probe that walks into it.
//!
//! ```text
//!   verify ── WRAPPER… partage verify --probe ──► finds the library and its job, allocates to one step past the limit,
//!      ▲                                          frees, and says what it met in one line of standard output
//!      └──────────────── the line ────────────────┘
//! ```
//! The probe allocates nothing where no limit holds for it: it would take the whole GPU from others.

use std::ffi::{OsString, c_int, c_uint};
use std::path::PathBuf;
use std::process::{self, Stdio};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use partage_protocol::admin::{JobView, Request};
use partage_protocol::size::{Amount, format_bytes, parse_amount};
use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::arguments::Verify;
use crate::failure::{Failure, Outcome};
use crate::launch::command::Command;
use crate::launch::container;
use crate::launch::place::Place;
use crate::launch::preflight::verdict::Unmanaged;
use crate::link::ask;
use crate::show::report::{Report, write_err, write_out};

/// What the probe's line begins with: wrappers and login scripts write lines of their own.
const MARK: &str = "partage-verify: ";
/// The probe's last step: what a driver gives out at the least.
const STEP: u64 = 2 << 20;
/// The longest that the search for the limit takes in steps of a size.
const FIRST: u64 = 1 << 30;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;

/// What the probe met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Met {
    /// What it is shut into, in words; empty on the host.
    place: String,
    /// How the library came: `file`, `variable`, `both`; empty where it did not.
    preload: String,
    /// Why nothing could be tried; empty where something was.
    failure: String,
    /// The job that it belongs to; none where no broker knows it.
    job: Option<String>,
    /// The GPU that it met first, as `GPU-…`; empty where none was.
    gpu: String,
    /// The job's limit on that GPU, and what set it.
    limit_bytes: Option<u64>,
    limit_from: String,
    /// `cuMemGetInfo`'s total.
    total_bytes: u64,
    /// What it had when it was denied, its context included; none where it was not.
    denied_at_bytes: Option<u64>,
    /// The driver's code then.
    code: i32,
}

/// `partage verify`: 0 when the limit bit, 1 when it did not or nothing attached.
///
/// # Errors
/// WRAPPER cannot be started, or `-m` is no size.
pub fn verify(arguments: &Verify, place: &Place, report: &Report) -> Outcome<u8> {
    let most = arguments.mem.as_deref().map(size).transpose()?;
    if arguments.probe {
        let met = probe(place, most);
        let line = serde_json::to_string(&met).unwrap_or_default();
        write_out(&format!("{MARK}{line}\n"));
        return Ok(0);
    }
    let words = with_probe(&arguments.wrapper, most);
    let met = behind(&words)?;
    let verdict = judge(met.as_ref(), most).map_err(|text| text + &cause(&words, met.as_ref()));
    let met = met.unwrap_or_default();
    let body = json!({
        "is_bound": verdict.is_ok(),
        "message": verdict.as_ref().map_or_else(Clone::clone, Clone::clone),
        "place": met.place,
        "preload": met.preload,
        "job": met.job,
        "limit_bytes": met.limit_bytes,
        "limit_from": met.limit_from,
        "total_bytes": met.total_bytes,
        "denied_at_bytes": met.denied_at_bytes,
    });
    report.data("verify", body, |style| {
        let (word, text) = match &verdict {
            Ok(text) => ("ok", text),
            Err(text) => ("fail", text),
        };
        format!("{}  {}\n", style.state(word), style.text(text))
    });
    Ok(u8::from(verdict.is_err()))
}

fn size(text: &str) -> Outcome<u64> {
    match parse_amount(text) {
        Ok(Amount::Bytes(bytes)) => Ok(bytes),
        Ok(Amount::Share(_)) => Err(Failure::invalid(format!(
            "--mem: {text} of what? use a size, e.g. --mem 1GiB"
        ))),
        Err(error) => Err(Failure::invalid(format!("--mem: {error}"))),
    }
}

/// This program, which is the probe, too.
fn own() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("partage"))
}

/// WRAPPER's words and the probe's.
fn with_probe(wrapper: &[OsString], most: Option<u64>) -> Vec<OsString> {
    let mut words: Vec<OsString> = wrapper.to_vec();
    words.extend([own().into_os_string(), "verify".into(), "--probe".into()]);
    words.extend(
        most.into_iter()
            .flat_map(|most| ["-m".into(), format!("{most}B").into()]),
    );
    words
}

/// Runs the probe behind WRAPPER. `None`: it said nothing.
fn behind(words: &[OsString]) -> Outcome<Option<Met>> {
    let mut command = process::Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
    let output = command.spawn().and_then(process::Child::wait_with_output);
    let output = output.map_err(|error| {
        let program = words[0].to_string_lossy().into_owned();
        Failure::failed(format!("cannot start {program}: {error}"))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut met = None;
    for line in text.lines() {
        match line.strip_prefix(MARK).and_then(|line| serde_json::from_str(line).ok()) {
            Some(found) => met = Some(found),
            // What else was said there is no data of ours.
            None => write_err(&format!("{line}\n")),
        }
    }
    Ok(met)
}

/// What is known against WRAPPER, where the probe did not run behind it or has no library; else nothing.
fn cause(words: &[OsString], met: Option<&Met>) -> String {
    if met.is_some_and(|met| !met.preload.is_empty()) {
        return String::new();
    }
    match Command::find(words).ok().and_then(|command| command.unmanaged) {
        // A program without the library passes the variable on to a probe; in the probe's place it is what was meant.
        // One that drops the variable says nothing of a probe that never ran: a container may have no such file.
        Some(unmanaged) if unmanaged.passes_on == met.is_none() => {
            let Unmanaged { what, why, instead, .. } = unmanaged;
            format!(" ({what}: {why}; {instead})")
        }
        _ => String::new(),
    }
}

/// Does a limit hold there? Either way a sentence.
fn judge(met: Option<&Met>, most: Option<u64>) -> Result<String, String> {
    let Some(met) = met else {
        let own = own();
        let text = "the probe did not run there: WRAPPER has to start this very program";
        return Err(format!("{text}, {}", own.display()));
    };
    let place = match met.place.as_str() {
        "" => String::new(),
        place => format!("in {place}: "),
    };
    let wrong = |text: String| Err(format!("{place}{text}"));
    if met.preload.is_empty() {
        return wrong("the library is not in the program, so no limit holds for it".to_owned());
    }
    let Some(job) = &met.job else {
        let why = match met.failure.as_str() {
            "" => String::new(),
            failure => format!(": {failure}"),
        };
        return wrong(format!("no broker knows the program{why}"));
    };
    if !met.failure.is_empty() {
        return wrong(format!("nothing could be tried in {job}: {}", met.failure));
    }
    let Some(limit) = met.limit_bytes else {
        return wrong(format!("{job} has no memory limit"));
    };
    let from = match met.limit_from.as_str() {
        "" => String::new(),
        from => format!(" ({from})"),
    };
    if let Some(most) = most.filter(|most| limit > *most) {
        let most = format_bytes(most);
        let limit = format_bytes(limit);
        return wrong(format!("{job} may have {limit}{from}, more than {most}"));
    }
    match met.denied_at_bytes {
        Some(held) if met.code == OUT_OF_MEMORY && held <= limit && met.total_bytes <= limit => Ok(format!(
            "{place}{job} is bound: it saw {} in all and was denied the next {} at {}, by its limit of {}{from}",
            format_bytes(met.total_bytes),
            format_bytes(STEP),
            format_bytes(held),
            format_bytes(limit)
        )),
        Some(held) => wrong(format!(
            "{job} was denied with code {} at {}, and its limit is {}{from}",
            met.code,
            format_bytes(held),
            format_bytes(limit)
        )),
        None => wrong(format!(
            "{job} got more than its limit of {}{from}",
            format_bytes(limit)
        )),
    }
}

// ---- the probe ------------------------------------------------------------------------------------------------

fn probe(place: &Place, most: Option<u64>) -> Met {
    let mut met = Met {
        place: container::here().map_or(String::new(), |container| container.what),
        preload: preload().to_owned(),
        ..Met::default()
    };
    if met.preload.is_empty() {
        return met;
    }
    // SAFETY: loading runs the driver's constructors, as in any CUDA program, which this process is now.
    let library = match unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => library,
        Err(error) => {
            met.failure = format!("no CUDA driver: {error}");
            return met;
        }
    };
    let result = Driver::of(&library).and_then(|driver| {
        driver.begin(&mut met)?;
        match own_job(place) {
            Ok(job) => note_job(&mut met, &job),
            Err(failure) => met.failure = failure.message,
        }
        driver.walk(&mut met, most)
    });
    if let Err(failure) = result {
        met.failure = failure;
    }
    met
}

/// How the library came into this process.
fn preload() -> &'static str {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_ours = |path: &str| {
        path.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with("libpartage"))
    };
    let mut mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    if !mapped.any(is_ours) {
        return "";
    }
    let names = |text: &str| text.split([':', ' ', '\n', '\t']).any(is_ours);
    let by_file = names(&std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default());
    let by_variable = names(&std::env::var("LD_PRELOAD").unwrap_or_default());
    match (by_file, by_variable) {
        (true, true) => "both",
        (true, false) => "file",
        _ => "variable",
    }
}

/// The job of this process, which has attached.
fn own_job(place: &Place) -> Outcome<JobView> {
    let target = process::id().to_string();
    ask::job(place, &Request::Get { target })
}

fn note_job(met: &mut Met, job: &JobView) {
    met.job = Some(job.job.clone());
    // Not always the job's first: a process may see some of them, or in another order. The driver's bytes do not say
    // whether they name a MIG instance.
    let of = |uuid: &str| uuid.split_once('-').map(|(_, digits)| digits.to_ascii_lowercase());
    let own = job.devices.iter().find(|device| of(&device.uuid) == of(&met.gpu));
    if let Some(device) = own.or(job.devices.first()) {
        met.limit_bytes = device.limit_bytes;
        met.limit_from = device.limit_from.clone();
    }
}

/// The few calls of the driver that the probe makes.
struct Driver {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut usize, c_int) -> c_int,
    set_current: unsafe extern "C" fn(usize) -> c_int,
    info: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
}

impl Driver {
    fn of(library: &Library) -> Result<Self, String> {
        fn find<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
            // SAFETY: the types are those of cuda.h for these names, unchanged since CUDA 7.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            found
                .map(|function| *function)
                .map_err(|_| format!("the driver has no {name}"))
        }
        Ok(Self {
            init: find(library, "cuInit")?,
            // The newer one names a MIG instance where the older names its GPU.
            uuid: find(library, "cuDeviceGetUuid_v2").or_else(|_| find(library, "cuDeviceGetUuid"))?,
            retain: find(library, "cuDevicePrimaryCtxRetain")?,
            set_current: find(library, "cuCtxSetCurrent")?,
            info: find(library, "cuMemGetInfo_v2")?,
            alloc: find(library, "cuMemAlloc_v2")?,
            free: find(library, "cuMemFree_v2")?,
        })
    }

    /// Makes a context on the first GPU that it sees.
    fn begin(&self, met: &mut Met) -> Result<(), String> {
        let done = |what: &str, code: c_int| match code {
            0 => Ok(()),
            code => Err(format!("{what} failed with {code}")),
        };
        let (mut context, mut free, mut total, mut bytes) = (0, 0, 0, [0; 16]);
        // SAFETY: the pointers are to live numbers, and bytes, of the sizes that these calls write.
        unsafe {
            done("cuInit", (self.init)(0))?;
            done("cuDeviceGetUuid", (self.uuid)(&raw mut bytes, 0))?;
            done("cuDevicePrimaryCtxRetain", (self.retain)(&raw mut context, 0))?;
            done("cuCtxSetCurrent", (self.set_current)(context))?;
            done("cuMemGetInfo", (self.info)(&raw mut free, &raw mut total))?;
        }
        met.total_bytes = total as u64;
        met.gpu = DeviceUuid { bytes, is_mig: false }.to_string();
        Ok(())
    }

    /// Allocates until it is denied, in steps that shrink, or until it has more than it may; frees all.
    fn walk(&self, met: &mut Met, most: Option<u64>) -> Result<(), String> {
        let Some(limit) = met.limit_bytes else { return Ok(()) };
        let bound = most.map_or(limit, |most| most.min(limit));
        let used = || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: as above.
            let code = unsafe { (self.info)(&raw mut free, &raw mut total) };
            if code == 0 { (total - free) as u64 } else { 0 }
        };
        // Its context, and what other processes of the job hold.
        let before = used();
        let (mut held, mut step, mut parts) = (before, FIRST, Vec::new());
        while step >= STEP && held <= bound {
            let mut address = 0;
            // SAFETY: as above.
            let code = unsafe { (self.alloc)(&raw mut address, step as usize) };
            if code == 0 {
                parts.push(address);
                held += step;
            } else {
                (met.code, met.denied_at_bytes) = (code, Some(held));
                step /= 2;
            }
        }
        if held > bound {
            met.denied_at_bytes = None;
        }
        for address in parts {
            // SAFETY: allocated above.
            unsafe { (self.free)(address) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn bound() -> Met {
        Met {
            preload: "file".to_owned(),
            job: Some("j3".to_owned()),
            limit_bytes: Some(GIB),
            limit_from: "the rule small".to_owned(),
            total_bytes: GIB,
            denied_at_bytes: Some(GIB - STEP),
            code: OUT_OF_MEMORY,
            ..Met::default()
        }
    }

    #[test]
    fn a_limit_that_bit_is_said_with_its_job_and_rule() {
        let said = judge(Some(&bound()), None).expect("it holds");
        assert!(
            said.contains("j3 is bound") && said.contains("1 GiB (the rule small)"),
            "{said}"
        );
        judge(Some(&bound()), Some(2 * GIB)).expect("it is within what was asked");
    }

    #[test]
    fn everything_else_is_no_proof() {
        let not = |change: fn(&mut Met), most: Option<u64>, word: &str| {
            let mut met = bound();
            change(&mut met);
            let said = judge(Some(&met), most).expect_err(word);
            assert!(said.contains(word), "{said}");
        };
        assert!(judge(None, None).is_err());
        not(|met| met.preload.clear(), None, "not in the program");
        not(|met| met.job = None, None, "no broker knows");
        not(|met| met.limit_bytes = None, None, "no memory limit");
        not(|met| met.denied_at_bytes = None, None, "more than its limit");
        not(|met| met.code = 1, None, "code 1");
        not(|met| met.total_bytes = 2 * GIB, None, "code 2");
        not(
            |met| met.failure = "cuInit failed with 100".to_owned(),
            None,
            "cuInit failed with 100",
        );
        not(|_| (), Some(GIB / 2), "more than 512 MiB");
    }
}

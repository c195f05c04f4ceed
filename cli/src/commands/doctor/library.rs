// SPDX-License-Identifier: Apache-2.0
//! The preloaded library: is it there, does this system's loader take it, and who else is preloaded.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use super::check::Check;
use crate::launch::installed;
use crate::launch::library_copy;
use crate::launch::place::Place;
use crate::launch::preflight::elf::{FileKind, kind, newest_glibc_needed};

/// Other libraries that hook the CUDA driver; a part of the file name, and who it is.
const OTHER_HOOKS: &[(&str, &str)] = &[
    ("libvgpu", "HAMi"),
    ("libnvshare", "nvshare"),
    ("libcuda-control", "vCUDA"),
    ("libcuhook", "a CUDA hook"),
    ("libxpreemption", "XSched"),
    ("libgemhook", "Gemini"),
    ("libToolsInjection", "Nsight Systems"),
    ("libInterceptorInjection", "Nsight Graphics"),
    ("libcuda_wrapper", "a CUDA hook"),
];

/// Library and preloads.
pub fn checks(place: &Place) -> Vec<Check> {
    vec![
        match installed::find(installed::LIBRARY) {
            Ok(path) => library(&path, place),
            Err(failure) => Check::failed("library", &failure),
        },
        match installed::find(installed::BROKER) {
            Ok(path) => Check::ok("partaged", path.display().to_string()),
            Err(failure) => Check::failed("partaged", &failure),
        },
        preloads(
            &env::var("LD_PRELOAD").unwrap_or_default(),
            &std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default(),
        ),
        injections(|name| env::var(name).ok().filter(|v| !v.is_empty())),
    ]
}

fn library(path: &Path, place: &Place) -> Check {
    const NAME: &str = "library";
    let shown = path.display();
    match kind(path) {
        Ok(FileKind::Elf { .. }) => {}
        Ok(other) => {
            let text = format!("{shown} is no library for this machine: {other:?}");
            return Check::fail(NAME, text, "install again");
        }
        Err(error) => return Check::fail(NAME, format!("{shown}: {error}"), "install again"),
    }
    let own = glibc_version();
    if let (Ok(Some(needed)), Some(own)) = (newest_glibc_needed(path), own)
        && needed > own
    {
        let text = format!(
            "{shown} needs glibc {}.{}, this system has {}.{}",
            needed.0, needed.1, own.0, own.1
        );
        return Check::fail(NAME, text, "install the release build, which needs 2.17");
    }
    let copy = match library_copy::provide(&place.dir) {
        Ok(copy) => copy,
        Err(failure) => return Check::failed(NAME, &failure),
    };
    // The proof: ld.so says on standard error what it does not load, and goes on without it.
    let probe = env::current_exe().map(|own| {
        Command::new(own)
            .arg("version")
            .env("LD_PRELOAD", &copy)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
    });
    match probe {
        Ok(Ok(output)) if output.status.success() && output.stderr.is_empty() => {
            Check::ok(NAME, copy.display().to_string())
        }
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("no reason given");
            let text = format!("{} does not load: {said}", copy.display());
            Check::fail(NAME, text, "install the build for this system")
        }
        Ok(Err(error)) | Err(error) => {
            let text = format!("{} could not be tried: {error}", copy.display());
            Check::warn(NAME, text, "run partage doctor again")
        }
    }
}

/// This system's glibc.
pub fn glibc_version() -> Option<(u32, u32)> {
    // SAFETY: the answer is a static, terminated string.
    let text = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }
        .to_str()
        .ok()?;
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn preloads(variable: &str, file: &str) -> Check {
    const NAME: &str = "preloads";
    let in_variable = variable.split([' ', ':']).map(|entry| ("LD_PRELOAD", entry));
    let lines = file.lines().map(|line| line.split('#').next().unwrap_or_default());
    let in_file = lines
        .flat_map(|line| line.split([' ', '\t', ':']))
        .map(|entry| ("/etc/ld.so.preload", entry));
    let entries = in_variable.chain(in_file).filter(|(_, e)| !e.is_empty());
    let (ours, entries): (Vec<_>, Vec<_>) = entries.partition(|(_, entry)| library_copy::is_ours(entry));
    for (place, entry) in &entries {
        if let Some(who) = other_hook(entry) {
            let text = format!("{entry} in {place} hooks the driver too ({who})");
            let fix = format!("remove it from {place}: two hooks may each charge the other's calls");
            return Check::warn(NAME, text, fix);
        }
    }
    for (place, entry) in &entries {
        if entry.contains('/') && !entry.contains('$') && !Path::new(entry).exists() {
            let text = format!("{entry} in {place} is missing; ld.so complains in every program");
            return Check::warn(NAME, text, format!("remove it from {place}"));
        }
    }
    if let Some((place, entry)) = ours
        .iter()
        .find(|(_, entry)| entry.contains('/') && !Path::new(entry).exists())
    {
        let text = format!("{entry} in {place} is missing; programs complain, and run without a limit");
        let remedy = match *place {
            "LD_PRELOAD" => "start the job again with `partage run`",
            _ => "sudo partage install, or sudo partage uninstall --system-preload",
        };
        return Check::fail(NAME, text, remedy);
    }
    let mut places: Vec<&str> = ours.iter().map(|(place, _)| *place).collect();
    places.dedup();
    let mut parts = Vec::new();
    if !places.is_empty() {
        parts.push(format!("ours by {}", places.join(" and ")));
    }
    if !entries.is_empty() {
        let others: Vec<&str> = entries.iter().map(|(_, entry)| *entry).collect();
        parts.push(format!("kept after ours: {}", others.join(" ")));
    }
    if parts.is_empty() {
        parts.push("none".to_owned());
    }
    Check::ok(NAME, parts.join("; "))
}

fn other_hook(entry: &str) -> Option<&'static str> {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    let (_, who) = OTHER_HOOKS.iter().find(|(part, _)| name.starts_with(part))?;
    Some(who)
}

/// Variables by which others get between program and driver.
fn injections(variable: impl Fn(&str) -> Option<String>) -> Check {
    const NAME: &str = "hooks";
    if let Some(path) = variable("CUDA_INJECTION64_PATH") {
        let text = format!("CUDA_INJECTION64_PATH loads {path} into every CUDA program");
        let fix = "unset it unless you profile: its own allocations are charged to the job";
        return Check::warn(NAME, text, fix);
    }
    for name in ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] {
        if let Some(value) = variable(name) {
            let text = format!("{name}={value}: programs may run under MPS, where one process uses the GPU for all");
            let fix = format!("unset {name}, or expect `unmanaged` to name the MPS server");
            return Check::warn(NAME, text, fix);
        }
    }
    Check::ok(NAME, "none")
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn other_hooks_and_missing_files_are_named() {
        assert_eq!(preloads("", "").state, State::Ok);
        assert_eq!(preloads("", "").text, "none");
        let gone = preloads("", "/tmp/partage-0/lib/libpartage-0.1.0-aa.so");
        assert!(gone.state == State::Fail && gone.text.contains("missing"), "{gone:?}");
        let folder = env::temp_dir().join(format!("partage-preloads-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("writable");
        let ours = folder.join("libpartage-0.1.0-aa.so").display().to_string();
        std::fs::write(&ours, "").expect("writable");
        let ours = ours.as_str();
        assert_eq!(preloads(ours, "").text, "ours by LD_PRELOAD");
        assert_eq!(preloads(ours, ours).text, "ours by LD_PRELOAD and /etc/ld.so.preload");
        let hami = preloads("", "# comment\n/usr/local/vgpu/libvgpu.so # HAMi\n");
        assert!(hami.state == State::Warn && hami.text.contains("HAMi"), "{hami:?}");
        let missing = preloads("/nowhere/libx.so", "");
        assert!(
            missing.state == State::Warn && missing.text.contains("missing"),
            "{missing:?}"
        );
        assert_eq!(
            preloads("libjemalloc.so.2", "").text,
            "kept after ours: libjemalloc.so.2"
        );
        std::fs::remove_dir_all(folder).expect("clean up");
    }

    #[test]
    fn injections_are_named() {
        let with = |name: &'static str| injections(move |asked| (asked == name).then(|| "/x".to_owned()));
        assert_eq!(with("nothing").state, State::Ok);
        assert_eq!(with("CUDA_INJECTION64_PATH").state, State::Warn);
        assert_eq!(with("CUDA_MPS_PIPE_DIRECTORY").state, State::Warn);
    }

    #[test]
    fn the_version_of_this_systems_libc_is_known() {
        assert!(glibc_version().is_some_and(|(major, minor)| major == 2 && minor >= 17));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! `partage cdi generate`: the file by which container engines know Partage (Container Device Interface).
//!
//! A device for each class. Its edits are three mounts (the library, the `ld.so.preload` that names it, the broker's
//! folder `client/`) and the hook, whose arguments hold the class: an environment does not reach what enters a
//! container later. All edits stand in the device, where every version of the specification has them. The version is
//! the lowest that the content needs, so that old engines read it: 0.3.0, or 0.5.0 where a name begins with a digit.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::arguments::CdiGenerate;
use crate::failure::{Failure, Kind, Outcome, reason};
use crate::launch::library_copy;
use crate::launch::place::{Place, SYSTEM_DIR};
use crate::link::ask;
use crate::show::report::Report;

/// Vendor and class of the devices.
pub const KIND: &str = "partage.dev/share";
/// The device whose limits are those of the rules.
const DEFAULT: &str = "default";
/// Where a container finds the library, whatever its version.
const LIBRARY: &str = "/usr/lib/partage/libpartage.so";
/// Seconds after which an engine ends the hook, which gives up before.
const HOOK_SECONDS: u32 = 10;

/// How the broker's folder is mounted: what runs inside connects to its socket, for which it need not write there, and
/// root in a container must not put another one in its place.
const FOLDER: [&str; 5] = ["ro", "nosuid", "nodev", "noexec", "rbind"];

/// What the description depends on.
struct Parts<'a> {
    /// The library's versioned copy.
    library: &'a Path,
    /// A file that names [`LIBRARY`].
    preload: &'a Path,
    /// The program that is the hook.
    program: &'a Path,
    /// The broker's directory.
    broker: &'a Path,
    is_open: bool,
}

/// `partage cdi generate`.
pub fn generate(arguments: &CdiGenerate, place: &Place, report: &Report) -> Outcome<u8> {
    let mut classes = ask::config(place, None)?.classes;
    if !classes.iter().any(|class| class == DEFAULT) {
        classes.insert(0, DEFAULT.to_owned());
    }
    let (name, content) = library_copy::versioned()?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this program: {}", reason(&error))))?;
    let files = std::path::absolute(&arguments.files).unwrap_or_else(|_| arguments.files.clone());
    let (library, preload) = (files.join(name), files.join("ld.so.preload"));
    let parts = Parts {
        library: &library,
        preload: &preload,
        program: &program,
        broker: &place.dir,
        is_open: arguments.open,
    };
    let described = describe(&classes, &parts)?;
    let text =
        serde_json::to_string_pretty(&described).map_err(|error| Failure::new(Kind::Internal, error.to_string()))?;
    if arguments.output == "-" {
        crate::show::report::write_out(&(text + "\n"));
        return Ok(0);
    }
    let output = PathBuf::from(&arguments.output);
    write(&library, &content, 0o755)?;
    write(&preload, format!("{LIBRARY}\n").as_bytes(), 0o644)?;
    // Last: an engine that reads it finds what it names.
    write(&output, (text + "\n").as_bytes(), 0o644)?;
    let names: Vec<String> = classes.iter().map(|class| format!("{KIND}={class}")).collect();
    let message = format!("{} has {}", output.display(), names.join(", "));
    Ok(report.done(&message))
}

/// The description.
///
/// # Errors
/// A class whose name no device may have.
fn describe(classes: &[String], parts: &Parts<'_>) -> Outcome<Value> {
    for class in classes {
        if !class.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            let message =
                format!("class {class:?} cannot be a device: its name ends with neither a letter nor a digit");
            return Err(Failure::invalid(message).hint("rename it in the configuration"));
        }
    }
    let is_new = classes
        .iter()
        .any(|class| !class.starts_with(|c: char| c.is_ascii_alphabetic()));
    let version = if is_new { "0.5.0" } else { "0.3.0" };
    let devices: Vec<Value> = classes.iter().map(|class| device(class, parts)).collect();
    Ok(json!({ "cdiVersion": version, "kind": KIND, "devices": devices }))
}

fn device(class: &str, parts: &Parts<'_>) -> Value {
    let mount =
        |from: &Path, to: &str, options: &[&str]| json!({ "hostPath": from, "containerPath": to, "options": options });
    let only_read = ["ro", "nosuid", "nodev", "bind"];
    let mut arguments = vec!["partage".to_owned(), "hook".to_owned(), "create-runtime".to_owned()];
    if class != DEFAULT {
        arguments.extend(["--class".to_owned(), class.to_owned()]);
    }
    if parts.is_open {
        arguments.push("--open".to_owned());
    }
    if parts.broker != Path::new(SYSTEM_DIR) {
        arguments.extend(["--socket-dir".to_owned(), parts.broker.display().to_string()]);
    }
    json!({
        "name": class,
        "containerEdits": {
            "mounts": [
                mount(parts.library, LIBRARY, &only_read),
                mount(parts.preload, "/etc/ld.so.preload", &only_read),
                mount(&parts.broker.join("client"), "/run/partage/client", &FOLDER),
            ],
            "hooks": [{
                "hookName": "createRuntime",
                "path": parts.program,
                "args": arguments,
                "timeout": HOOK_SECONDS,
            }],
        },
    })
}

/// Writes a file in one piece, in folders that everybody may read; one with this content stays as it is.
fn write(path: &Path, content: &[u8], mode: u32) -> Outcome<()> {
    let failed = |error: std::io::Error| {
        let failure = Failure::cannot("write", path, error);
        failure.hint("as root; or choose other places: --output FILE --files DIR")
    };
    if fs::read(path).is_ok_and(|now| now == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)
            .map_err(failed)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&draft)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(is_open: bool, broker: &Path) -> Parts<'_> {
        Parts {
            library: Path::new("/var/lib/partage/containers/libpartage-0.1.0-0123456789abcdef.so"),
            preload: Path::new("/var/lib/partage/containers/ld.so.preload"),
            program: Path::new("/usr/local/bin/partage"),
            broker,
            is_open,
        }
    }

    fn described(classes: &[&str]) -> Value {
        let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
        describe(&classes, &parts(false, Path::new(SYSTEM_DIR))).expect("names of devices")
    }

    /// What a file of ours does that a version's published schema and specification do not allow
    /// (<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>, its table of versions).
    #[derive(Default)]
    struct Problems(Vec<&'static str>);

    impl Problems {
        fn of(spec: &Value, version: (u32, u32)) -> Self {
            let mut found = Self::default();
            found.only(spec, &["cdiVersion", "kind", "annotations", "devices"]);
            found.check(
                spec.get("annotations").is_none() || version >= (0, 6),
                "annotations before 0.6.0",
            );
            let kind = spec["kind"].as_str().unwrap_or_default();
            let (vendor, class) = kind.split_once('/').unwrap_or_default();
            let is_vendor = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            found.check(!vendor.is_empty() && vendor.chars().all(is_vendor), "the vendor's name");
            found.check(
                !class.contains('.') || version >= (0, 6),
                "a dot in the class before 0.6.0",
            );
            let devices = list(&spec["devices"]);
            found.check(!devices.is_empty(), "no device");
            let names: std::collections::BTreeSet<String> = devices.iter().map(|it| it["name"].to_string()).collect();
            found.check(names.len() == devices.len(), "a name twice");
            for device in &devices {
                found.device(device, version);
            }
            found
        }

        fn check(&mut self, is_fine: bool, what: &'static str) {
            if !is_fine {
                self.0.push(what);
            }
        }

        fn only(&mut self, value: &Value, known: &[&str]) {
            let keys = value
                .as_object()
                .map(|map| map.keys().map(String::as_str).collect::<Vec<_>>());
            let are_known = keys.is_some_and(|keys| !keys.is_empty() && keys.iter().all(|key| known.contains(key)));
            self.check(are_known, "an unknown key, or none");
        }

        fn device(&mut self, device: &Value, version: (u32, u32)) {
            self.only(device, &["name", "annotations", "containerEdits"]);
            let name = device["name"].as_str().unwrap_or_default();
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
            let starts = |c: char| c.is_ascii_alphabetic() || c.is_ascii_digit() && version >= (0, 5);
            let ends = |c: char| c.is_ascii_alphanumeric();
            let is_fine = name.chars().all(is_name) && name.starts_with(starts) && name.ends_with(ends);
            self.check(is_fine, "a device's name");
            let edits = &device["containerEdits"];
            let mut known = vec!["env", "deviceNodes", "mounts", "hooks"];
            known.extend(["intelRdt", "additionalGids"].iter().filter(|_| version >= (0, 7)));
            known.extend(["netDevices"].iter().filter(|_| version >= (1, 1)));
            self.only(edits, &known);
            for mount in list(&edits["mounts"]) {
                self.only(&mount, &["hostPath", "containerPath", "options", "type"]);
                self.check(
                    mount.get("type").is_none() || version >= (0, 4),
                    "a mount's type before 0.4.0",
                );
                self.check(
                    mount["hostPath"].is_string() && mount["containerPath"].is_string(),
                    "a mount's paths",
                );
                self.check(
                    list(&mount["options"]).iter().all(Value::is_string),
                    "a mount's options",
                );
            }
            for hook in list(&edits["hooks"]) {
                self.hook(&hook);
            }
        }

        fn hook(&mut self, hook: &Value) {
            const NAMES: [&str; 6] = [
                "prestart",
                "createRuntime",
                "createContainer",
                "startContainer",
                "poststart",
                "poststop",
            ];
            self.only(hook, &["hookName", "path", "args", "env", "timeout"]);
            self.check(
                NAMES.contains(&hook["hookName"].as_str().unwrap_or_default()),
                "a hook's name",
            );
            self.check(
                hook["path"].as_str().is_some_and(|path| path.starts_with('/')),
                "a hook's path",
            );
            self.check(list(&hook["args"]).iter().all(Value::is_string), "a hook's arguments");
            self.check(hook["timeout"].is_u64(), "a hook's timeout");
        }
    }

    fn list(value: &Value) -> Vec<Value> {
        value.as_array().cloned().unwrap_or_default()
    }

    const VERSIONS: [(u32, u32); 8] = [(0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (1, 0), (1, 1)];

    #[test]
    fn a_class_is_described_as_the_golden_file_says() {
        for (class, golden) in [
            ("default", include_str!("golden/default.json")),
            ("small", include_str!("golden/small.json")),
            ("8GiB", include_str!("golden/8GiB.json")),
        ] {
            let text = serde_json::to_string_pretty(&described(&[class])).expect("JSON") + "\n";
            assert_eq!(text, golden, "{class}");
        }
    }

    #[test]
    fn the_lowest_version_is_named_and_every_later_one_takes_the_file() {
        for (classes, lowest) in [
            (&["default", "small.a_b-c"][..], (0, 3)),
            (&["default", "8GiB"], (0, 5)),
        ] {
            let spec = described(classes);
            assert_eq!(spec["cdiVersion"], format!("{}.{}.0", lowest.0, lowest.1));
            for version in VERSIONS {
                let problems = Problems::of(&spec, version).0;
                assert_eq!(problems.is_empty(), version >= lowest, "{version:?}: {problems:?}");
            }
        }
    }

    #[test]
    fn what_a_version_does_not_know_is_found() {
        let changes: [(&str, Value, &str); 8] = [
            ("/kind", json!("partage/share.x"), "a dot in the class before 0.6.0"),
            ("/devices", json!([]), "no device"),
            ("/devices/0/name", json!("small_"), "a device's name"),
            ("/devices/0/limits", json!({}), "an unknown key, or none"),
            (
                "/devices/0/containerEdits/mounts/0/type",
                json!("bind"),
                "a mount's type before 0.4.0",
            ),
            (
                "/devices/0/containerEdits/additionalGids",
                json!([1]),
                "an unknown key, or none",
            ),
            (
                "/devices/0/containerEdits/hooks/0/hookName",
                json!("createruntime"),
                "a hook's name",
            ),
            (
                "/devices/0/containerEdits/hooks/0/path",
                json!("partage"),
                "a hook's path",
            ),
        ];
        for (place, value, problem) in changes {
            let mut spec = described(&["small"]);
            let (above, key) = place.rsplit_once('/').expect("a place");
            spec.pointer_mut(above).expect("it is there")[key] = value;
            assert_eq!(Problems::of(&spec, (0, 3)).0, [problem], "{place}");
        }
    }

    #[test]
    fn no_environment_and_no_device_of_the_vendor_is_in_it() {
        let text = described(&["default", "small"]).to_string();
        assert!(
            !text.contains("\"env\"") && !text.contains("deviceNodes") && !text.contains("nvidia"),
            "{text}"
        );
    }

    #[test]
    fn what_is_unusual_stands_in_the_hooks_arguments() {
        let spec = describe(&["default".to_owned()], &parts(true, Path::new("/tmp/partage-1000"))).expect("a name");
        let edits = &spec["devices"][0]["containerEdits"];
        let arguments = &edits["hooks"][0]["args"];
        let wanted = json!([
            "partage",
            "hook",
            "create-runtime",
            "--open",
            "--socket-dir",
            "/tmp/partage-1000"
        ]);
        assert_eq!(*arguments, wanted);
        assert_eq!(edits["mounts"][2]["hostPath"], "/tmp/partage-1000/client");
    }

    #[test]
    fn a_name_that_no_device_may_have_is_refused() {
        let failure = describe(&["small-".to_owned()], &parts(false, Path::new(SYSTEM_DIR))).expect_err("refused");
        assert!(
            failure.message.contains("\"small-\" cannot be a device"),
            "{}",
            failure.message
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a container runtime tells a hook: the state on standard input, and `config.json` in the bundle (OCI runtime
//! specification 1.0 to 1.2). Whoever starts the container writes much of both: nothing here is believed to raise
//! anything, and no text of it stops the reader.

use std::collections::BTreeMap;

use partage_protocol::admin::RegisterRequest;
use partage_protocol::labels::{MAX_LABEL_BYTES, MAX_LABELS};
use serde::Deserialize;

/// What our annotations begin with.
const OURS: &str = "partage.dev/";

/// Annotations by which engines tell a container's name, ours first.
const NAMES: [&str; 4] = [
    "partage.dev/name",
    "io.kubernetes.cri.container-name",
    "io.kubernetes.container.name",
    "nerdctl/name",
];

/// What engines write beside every container, and nobody looks for.
const CHATTER: [&str; 4] = [
    "io.container.manager",
    "io.kubernetes.cri-o.",
    "io.podman.annotations.",
    "org.opencontainers.",
];

/// What `partage.dev/` may be followed by.
const KNOWN: [&str; 4] = ["class", "compute", "mem", "name"];

/// The state of a container, as a hook reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct State {
    /// The container's id.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// The folder with `config.json`.
    pub bundle: String,
    /// What was written beside it.
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The parts of `config.json` that count here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    process: Option<Program>,
    mounts: Option<Vec<Mount>>,
    linux: Option<Linux>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Program {
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Mount {
    destination: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Linux {
    devices: Option<Vec<Device>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Device {
    path: String,
}

/// Completes a registration with what the container is and has. `request` has the numbers of the hook's own arguments.
///
/// # Errors
/// One sentence: the container has no GPU, or an annotation of ours cannot be followed.
pub fn complete(request: &mut RegisterRequest, state: &State, config: &Config) -> Result<(), String> {
    if state.pid == 0 {
        return Err("the container's state names no process: this is for the hook createRuntime".to_owned());
    }
    let annotations: BTreeMap<&str, &str> = config
        .annotations
        .iter()
        .chain(&state.annotations)
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    for key in annotations.keys().filter_map(|key| key.strip_prefix(OURS)) {
        if !KNOWN.contains(&key) {
            let known = KNOWN.join(", ");
            return Err(format!(
                "annotation {OURS}{}: unknown; {OURS} is followed by one of {known}",
                short(key)
            ));
        }
    }
    let ours = |key: &str| {
        annotations
            .get(format!("{OURS}{key}").as_str())
            .map(|text| (*text).to_owned())
    };
    request.pid = state.pid;
    request.container = Some(state.id.clone()).filter(|id| !id.is_empty());
    request.container_name = NAMES
        .iter()
        .find_map(|key| annotations.get(key))
        .map(|name| (*name).to_owned());
    (request.lower_mem, request.lower_compute, request.lower_class) = (ours("mem"), ours("compute"), ours("class"));
    add_labels(&mut request.run.labels, &annotations);
    let process = config.process.clone().unwrap_or_default();
    request.run.command = process.args.unwrap_or_default();
    if request.run.gpu.is_some() {
        return Ok(());
    }
    request.nodes = nodes(config);
    let names = process.env.iter().flatten().rev();
    let names = names.filter_map(|entry| entry.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
    request.run.gpu = names.take(1).next().map(str::to_owned);
    if let Some("" | "void" | "none") = request.run.gpu.as_deref() {
        request.run.gpu = None;
    }
    if request.nodes.is_empty() && request.run.gpu.is_none() {
        return Err(
            "the container is given no GPU: name one, such as --device nvidia.com/gpu=0 or --gpus 1".to_owned(),
        );
    }
    Ok(())
}

/// Annotations as labels behind those of the hook's arguments, which hold: ours first, then the others by name, as many
/// and as long as labels may be.
fn add_labels(labels: &mut Vec<(String, String)>, annotations: &BTreeMap<&str, &str>) {
    let (ours, others): (Vec<_>, Vec<_>) = annotations.iter().partition(|(key, _)| key.starts_with(OURS));
    let is_chatter = |key: &str| CHATTER.iter().any(|prefix| key.starts_with(prefix));
    for (key, value) in ours.into_iter().chain(others).filter(|(key, _)| !is_chatter(key)) {
        let is_told = labels.iter().any(|(known, _)| known == key);
        let fits = labels.len() < MAX_LABELS && key.len() + value.len() <= MAX_LABEL_BYTES;
        if !key.is_empty() && !is_told && fits {
            labels.push(((*key).to_owned(), (*value).to_owned()));
        }
    }
}

/// The numbers of the GPUs whose nodes the container gets, as devices or as mounts.
fn nodes(config: &Config) -> Vec<u32> {
    let devices = config.linux.iter().flat_map(|linux| &linux.devices).flatten();
    let mounts = config.mounts.iter().flatten().map(|mount| mount.destination.as_str());
    let paths = devices.map(|device| device.path.as_str()).chain(mounts);
    let mut found: Vec<u32> = paths.filter_map(node).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// `/dev/nvidia3`; a simulated machine has its `dev` in a folder of its own.
fn node(path: &str) -> Option<u32> {
    let (_, number) = path.rsplit_once("/dev/nvidia")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn completed(state: &Value, config: &Value) -> Result<RegisterRequest, String> {
        let mut request = RegisterRequest::default();
        let state = serde_json::from_value(state.clone()).expect("a state");
        let config = serde_json::from_value(config.clone()).expect("a configuration");
        complete(&mut request, &state, &config).map(|()| request)
    }

    #[test]
    fn a_container_of_podman_is_completed() {
        let state = json!({
            "ociVersion": "1.0.2-dev", "id": "0123abcd", "status": "creating", "pid": 4711, "bundle": "/b",
            "annotations": { "partage.dev/mem": "1GiB", "org.opencontainers.image.stopSignal": "15", "team": "a" },
        });
        let config = json!({
            "ociVersion": "1.0.2-dev",
            "process": { "args": ["python3", "train.py"], "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=void"] },
            "mounts": [{ "destination": "/run/sim/dev/nvidia3", "type": "bind" }, { "destination": "/dev/nvidiactl" }],
            "linux": { "devices": [
                { "path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1 },
                { "path": "/dev/nvidia-uvm", "type": "c" },
                { "path": "/dev/nvidia1" },
            ] },
            "annotations": { "partage.dev/compute": "30%", "partage.dev/mem": "2GiB" },
        });
        let request = completed(&state, &config).expect("complete");
        assert_eq!((request.pid, request.container.as_deref()), (4711, Some("0123abcd")));
        assert_eq!(request.nodes, [1, 3]);
        assert_eq!(
            request.lower_mem.as_deref(),
            Some("1GiB"),
            "the state's are the newer ones"
        );
        assert_eq!(request.lower_compute.as_deref(), Some("30%"));
        assert_eq!(request.run.command, ["python3", "train.py"]);
        let keys: Vec<&str> = request.run.labels.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["partage.dev/compute", "partage.dev/mem", "team"]);
        assert_eq!(request.run.gpu, None);
    }

    #[test]
    fn names_count_where_there_is_no_node() {
        let state = json!({ "pid": 1 });
        let with = |names: &str| {
            let env = [format!("NVIDIA_VISIBLE_DEVICES={names}")];
            completed(&state, &json!({ "process": { "env": env } })).map(|request| request.run.gpu)
        };
        assert_eq!(with("all"), Ok(Some("all".into())));
        assert_eq!(with("0,GPU-1"), Ok(Some("0,GPU-1".into())));
        for none in ["", "void", "none"] {
            assert!(with(none).is_err_and(|why| why.contains("no GPU")), "{none}");
        }
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        let state = json!({ "pid": 7, "annotations": { "partage.dev/memory": "1GiB" } });
        let why = completed(&state, &json!({})).expect_err("unknown");
        assert_eq!(
            why,
            "annotation partage.dev/memory: unknown; partage.dev/ is followed by one of class, compute, mem, name"
        );
        assert!(completed(&json!({}), &json!({})).is_err_and(|why| why.contains("no process")));
    }

    #[test]
    fn labels_of_the_hook_hold_and_others_are_few_and_short() {
        let mut labels = vec![("team".to_owned(), "vision".to_owned())];
        let long = "x".repeat(MAX_LABEL_BYTES);
        let keys: Vec<String> = (0..100).map(|number| format!("k{number:02}")).collect();
        let mut annotations: BTreeMap<&str, &str> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        annotations.insert("team", "other");
        annotations.insert("a", &long);
        add_labels(&mut labels, &annotations);
        assert_eq!(labels.len(), MAX_LABELS);
        assert_eq!(labels[0].1, "vision");
        assert!(labels.iter().all(|(key, _)| key != "a"));
        assert_eq!(partage_protocol::labels::check(&labels), Ok(()));
    }

    /// JSON of any shape, with the keys that count among the others.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[/a-z0-9.=,%-]{0,24}".prop_map(Value::from),
            prop_oneof![
                Just("/dev/nvidia0"),
                Just("NVIDIA_VISIBLE_DEVICES=all"),
                Just("/dev/nvidia99999999999")
            ]
            .prop_map(Value::from),
        ];
        let key = prop_oneof![
            Just("id"),
            Just("pid"),
            Just("bundle"),
            Just("annotations"),
            Just("process"),
            Just("env"),
            Just("args"),
            Just("mounts"),
            Just("destination"),
            Just("linux"),
            Just("devices"),
            Just("path"),
            Just("partage.dev/mem"),
            Just("partage.dev/x"),
            Just("é"),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| entries
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_state_and_no_configuration_stops_the_reader(
            (state, config) in (any_json(), any_json()),
            text in any::<String>(),
        ) {
            let _ = serde_json::from_str::<State>(&text);
            let state = serde_json::from_value::<State>(state);
            let (Ok(state), Ok(config)) = (state, serde_json::from_value::<Config>(config)) else {
                return Ok(());
            };
            let mut request = RegisterRequest::default();
            if complete(&mut request, &state, &config).is_ok() {
                prop_assert!(request.pid != 0);
                prop_assert!(!request.nodes.is_empty() || request.run.gpu.is_some());
                prop_assert_eq!(partage_protocol::labels::check(&request.run.labels), Ok(()));
                // Nothing that stands in the container's files is asked for.
                prop_assert_eq!((&request.run.mem, &request.run.compute, &request.run.class), (&None, &None, &None));
            }
        }
    }
}

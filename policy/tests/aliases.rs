// SPDX-License-Identifier: Apache-2.0
//! Other tools' memory variables, of a run and in the environment of a default job.

use crate::host::{Host, caller, uuid};
use crate::limits::{by_environment, configured, job, says, why, with_aliases};
use partage_policy::{Config, Membership, Process};
use partage_protocol::admin::{ErrorCode, RunRequest};
use partage_protocol::aliases::Family;
use partage_protocol::units::{GIB, MIB};

#[test]
fn other_tools_variables_limit_a_run_that_has_no_mem() {
    let mut host = Host::new(&[16, 16]);
    let (id, _) = host.admitted(1, with_aliases(&[("CUDA_DEVICE_MEMORY_LIMIT", "1g")]));
    let view = job(&host, id);
    assert_eq!(
        (view.devices[0].limit_bytes, view.devices[0].request_bytes),
        (Some(GIB), GIB)
    );
    assert_eq!(view.devices[0].limit_from, "CUDA_DEVICE_MEMORY_LIMIT=1g");
    let of_bob = host.policy.job_view(id, &caller(2), &host.board).expect("known");
    assert_eq!(
        of_bob.devices[0].limit_from, "",
        "what alice's environment says is hers"
    );

    let both = [
        ("NVIDIA_GPU_MEMORY_REQUEST", "1024"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "2048"),
    ];
    let (id, _) = host.admitted(1, with_aliases(&both));
    let view = job(&host, id);
    assert_eq!(
        (view.devices[0].limit_bytes, view.devices[0].request_bytes),
        (Some(2 * GIB), GIB)
    );

    let per_device = RunRequest {
        gpu: Some("1,0".into()),
        ..with_aliases(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G")])
    };
    let (id, _) = host.admitted(1, per_device);
    let limits: Vec<_> = job(&host, id)
        .devices
        .iter()
        .map(|d| (d.index, d.limit_bytes, d.request_bytes))
        .collect();
    assert_eq!(
        limits,
        [(1, Some(2 * GIB), 2 * GIB), (0, None, 0)],
        "the first that the program sees"
    );

    let slots = [
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "3g"),
    ];
    let auto = RunRequest {
        gpu: Some("auto:2".into()),
        ..with_aliases(&slots)
    };
    let (id, _) = host.admitted(1, auto);
    let limits: Vec<_> = job(&host, id).devices.iter().map(|d| d.limit_bytes).collect();
    assert_eq!(limits, [Some(GIB), Some(3 * GIB)]);

    let own = RunRequest {
        mem: Some("4GiB".into()),
        mem_from: Some("PARTAGE_MEM".into()),
        ..with_aliases(&slots)
    };
    let (id, _) = host.admitted(1, own);
    assert_eq!(job(&host, id).devices[0].limit_from, "PARTAGE_MEM=4GiB");
}

#[test]
fn an_alias_that_cannot_be_followed_refuses_the_run() {
    let mut host = Host::new(&[16]);
    for (name, value, part) in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "8x", "unit"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "5=1G", "names GPU 5"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "GPU-ff=1G", "gpu-ff"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1GiB", "unit"),
    ] {
        let (ticket, _) = host.run(1, with_aliases(&[(name, value)]));
        let error = host.error_of(ticket);
        assert_eq!(error.code, ErrorCode::Invalid);
        assert!(
            error.message.contains(part) && error.message.contains(name),
            "{error:?}"
        );
    }
    let (ticket, _) = host.run(1, with_aliases(&[("NVIDIA_GPU_MEMORY_LIMIT", "999999")]));
    assert_eq!(host.error_of(ticket).code, ErrorCode::Impossible);
    // What the administrator switched off cannot be wrong either.
    let config = Config {
        aliases_off: vec![Family::Device],
        ..Config::default()
    };
    let mut host = configured(&[16], config);
    let (id, _) = host.admitted(1, with_aliases(&[("CUDA_DEVICE_MEMORY_LIMIT", "garbage")]));
    assert_eq!(job(&host, id).devices[0].limit_bytes, None);
}

#[test]
fn an_environment_limits_a_default_job_and_nobody_elses() {
    let mut host = Host::new(&[16, 16]);
    let attach = |host: &mut Host, pid, variables: &[(&str, &str)]| {
        let client = host
            .attach_as(Process { pid, start: 1 }, 1, by_environment(variables))
            .expect("welcomed");
        (client, host.programs[&client].job)
    };
    let (free, free_job) = attach(&mut host, 10, &[]);
    let (limited, limited_job) = attach(&mut host, 11, &[("CUDA_DEVICE_MEMORY_LIMIT", "1g")]);
    let (_, same) = attach(&mut host, 12, &[("CUDA_DEVICE_MEMORY_LIMIT", "1g")]);
    let (again, again_job) = attach(&mut host, 13, &[]);
    assert_eq!((limited_job, free_job), (same, again_job));
    assert_ne!(limited_job, free_job);
    assert!(host.allocate(limited, 0, 512 * MIB) && !host.allocate(limited, 0, GIB));
    assert!(
        host.allocate(free, 0, 4 * GIB) && host.allocate(again, 1, 4 * GIB),
        "only that process's job is lowered"
    );
    says(
        &why(&host, 1, &limited_job.to_string()),
        "limit 1 GiB by CUDA_DEVICE_MEMORY_LIMIT=1g, nothing promised",
    );

    // The index is the program's own.
    let seen = [
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
    ];
    let (_, id) = attach(&mut host, 14, &seen);
    let limits: Vec<_> = job(&host, id).devices.iter().map(|d| d.limit_bytes).collect();
    assert_eq!(limits, [None, Some(2 * GIB)]);
    let uuid_list = format!("{}=3G", uuid(1));
    let (_, id) = attach(&mut host, 15, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", &uuid_list)]);
    let limits: Vec<_> = job(&host, id).devices.iter().map(|d| d.limit_bytes).collect();
    assert_eq!(limits, [Some(3 * GIB), None]);
}

#[test]
fn an_environment_that_cannot_be_followed_never_means_no_limit() {
    let mut host = Host::new(&[16, 16]);
    let unknown = by_environment(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,7=1G")]);
    let client = host
        .attach_as(Process { pid: 10, start: 1 }, 1, unknown)
        .expect("welcomed");
    assert!(host.allocate(client, 1, GIB) && !host.allocate(client, 1, 1));
    let id = host.programs[&client].job;
    assert!(
        job(&host, id).notes[0].contains("names GPU 7"),
        "{:?}",
        job(&host, id).notes
    );
    let garbage = by_environment(&[("CUDA_DEVICE_MEMORY_LIMIT", "much")]);
    let client = host
        .attach_as(Process { pid: 11, start: 1 }, 1, garbage)
        .expect("welcomed");
    assert!(!host.allocate(client, 0, 512));
    says(&why(&host, 1, "11"), "CUDA_DEVICE_MEMORY_LIMIT=much is no whole number");
    let cut = Membership {
        is_environment_cut: true,
        ..by_environment(&[])
    };
    let client = host.attach_as(Process { pid: 12, start: 1 }, 1, cut).expect("welcomed");
    assert!(!host.allocate(client, 0, 512));
}

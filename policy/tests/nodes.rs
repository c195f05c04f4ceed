// SPDX-License-Identifier: Apache-2.0
//! The nodes that a process may open, `/dev/nvidiaN`: a container was given some of the machine's GPUs, and what runs
//! in it gets those.

use partage_policy::{Action, Membership, Process};
use partage_protocol::admin::{ErrorCode, RunRequest};
use partage_protocol::message::WELCOME_OPEN_SHIFT;
use partage_protocol::units::{ClientId, JobId};

use crate::host::{Host, mem};
use crate::limits::job;

/// A process attaches that may open these nodes; its job, and which of that job's devices it is told to show.
fn attach(host: &mut Host, by_kernel: Option<JobId>, nodes: u32) -> Option<(JobId, u32)> {
    let number = host.fresh();
    let process = Process {
        pid: number as u32,
        start: number,
    };
    let membership = Membership {
        scope: "session".into(),
        by_kernel,
        nodes,
        ..Membership::default()
    };
    let client = host.attach_as(process, 1, membership)?;
    Some((host.programs[&client].job, open(host, client)))
}

/// Bit N for slot N of its job.
fn open(host: &Host, client: ClientId) -> u32 {
    let mut welcomes = host.commands.iter().filter_map(|command| match command {
        Action::Welcome {
            client: welcomed,
            flags,
            ..
        } if *welcomed == client => Some(flags >> WELCOME_OPEN_SHIFT),
        _ => None,
    });
    welcomes.next_back().expect("welcomed")
}

fn indices(host: &Host, id: JobId) -> Vec<u32> {
    job(host, id).devices.iter().map(|device| device.index).collect()
}

fn with_nodes(request: RunRequest, nodes: u32) -> RunRequest {
    RunRequest {
        nodes,
        wait: false,
        ..request
    }
}

#[test]
fn a_default_job_has_the_gpus_that_its_process_can_open() {
    let mut host = Host::new(&[16, 16, 16]);
    let (all, shown) = attach(&mut host, None, 0).expect("welcomed");
    assert_eq!((indices(&host, all), shown), (vec![0, 1, 2], 0b111), "it is not known");
    let (two, shown) = attach(&mut host, None, 0b110).expect("welcomed");
    assert_eq!((indices(&host, two), shown), (vec![1, 2], 0b11));
    // Of one scope and one user: who can open others is of another job, and who can open the same of the same.
    let (one, _) = attach(&mut host, None, 0b100).expect("welcomed");
    assert_eq!(indices(&host, one), [2]);
    assert_eq!(attach(&mut host, None, 0b110).expect("welcomed").0, two);
    assert_eq!(attach(&mut host, None, 0).expect("welcomed").0, all);
    assert_eq!(
        attach(&mut host, None, 0b1000),
        None,
        "behind its node the broker sees no GPU"
    );
}

#[test]
fn a_device_whose_node_nobody_told_can_be_opened() {
    let mut host = Host::new(&[16, 16]);
    host.devices[1].minor = None;
    host.enumerate();
    let (job, shown) = attach(&mut host, None, 0b10).expect("welcomed");
    assert_eq!((indices(&host, job), shown), (vec![1], 0b1));
}

#[test]
fn a_member_shows_those_of_its_jobs_gpus_that_it_can_open() {
    let mut host = Host::new(&[16, 16, 16]);
    let request = RunRequest {
        gpu: Some("2,0".into()),
        ..mem("1GiB")
    };
    let (id, _) = host.admitted(1, request);
    for (nodes, shown) in [(0, 0b11), (0b001, 0b10), (0b100, 0b01), (0b010, 0b00), (0b111, 0b11)] {
        assert_eq!(attach(&mut host, Some(id), nodes), Some((id, shown)), "{nodes:b}");
    }
}

#[test]
fn a_run_is_placed_where_its_process_can_open_a_gpu() {
    let mut host = Host::new(&[16, 16]);
    host.admitted(
        1,
        RunRequest {
            gpu: Some("1".into()),
            ..mem("8GiB")
        },
    );
    // GPU 0 has more room, and is not there.
    let (ticket, _) = host.run(1, with_nodes(mem("4GiB"), 0b10));
    assert_eq!(host.devices_of(ticket), [1]);
    let (full, _) = host.run(1, with_nodes(mem("8GiB"), 0b10));
    assert_eq!(
        host.error_of(full).code,
        ErrorCode::NoRoom,
        "no other GPU takes its place"
    );
    let named = RunRequest {
        gpu: Some("0".into()),
        ..mem("1GiB")
    };
    let (ticket, _) = host.run(1, with_nodes(named, 0b10));
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoDevice);
    let (ticket, _) = host.run(1, with_nodes(mem("1GiB"), 0b100));
    let error = host.error_of(ticket);
    assert_eq!(error.code, ErrorCode::NoDevice);
    assert!(
        error.message.contains("can be opened where this command runs"),
        "{error:?}"
    );
}

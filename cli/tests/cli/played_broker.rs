// SPDX-License-Identifier: Apache-2.0
//! A broker that answers from a script: a thread of the test, or a process that `run` starts as `partaged`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv, send, socket,
};
use partage_protocol::admin::{
    Admitted, AuditView, BrokerView, CheckpointView, ClientView, DeniedView, DeviceView, ErrorCode, ErrorView,
    JobDeviceView, JobView, Reply, Request, ResidenceView, StatusView, TelemetryView, TermsView, UnmanagedView,
    XidView,
};
use partage_protocol::frame::{Assembler, packets};
use partage_protocol::message::MAX_PACKET;

/// Plays a broker in `dir` from a thread: each connection's request is answered by the next script line, its replies in
/// order, then hung up. Gives the requests as they come.
pub fn play(dir: &Path, script: Vec<Vec<Reply>>) -> Receiver<Request> {
    let listener = listen_in(dir);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for replies in script {
            let connection = next(&listener);
            let Some(request) = hear(&connection) else { continue };
            // Before the replies: whoever has one may look at the requests at once.
            if sender.send(request).is_err() {
                break;
            }
            replies.iter().for_each(|reply| say(&connection, reply));
        }
    });
    receiver
}

/// Binds the client socket of `dir`.
pub fn listen_in(dir: &Path) -> OwnedFd {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(dir.join("client"))
        .expect("make the socket directory");
    let path = dir.join("client/client.sock");
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    bind(fd.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("bind");
    listen(&fd, Backlog::new(64).expect("small")).expect("listen");
    fd
}

/// The next connection.
pub fn next(listener: &OwnedFd) -> OwnedFd {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).expect("accept");
    // SAFETY: accept4 just returned it, nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// One request; none when the peer hung up.
pub fn hear(connection: &OwnedFd) -> Option<Request> {
    let mut assembler = Assembler::default();
    let mut packet = vec![0; MAX_PACKET];
    loop {
        let length = recv(connection.as_raw_fd(), &mut packet, MsgFlags::empty())
            .ok()
            .filter(|&n| n > 0)?;
        if let Some(document) = assembler.push(&packet[..length]).expect("a frame") {
            return Some(serde_json::from_slice(&document).expect("a request"));
        }
    }
}

/// One reply; a peer that left early is its own test's business.
pub fn say(connection: &OwnedFd, reply: &Reply) {
    for packet in packets(&serde_json::to_vec(reply).expect("serialises")) {
        let _ = send(connection.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL);
    }
}

/// A device of a job.
pub fn job_device(index: u32, limit_bytes: Option<u64>) -> JobDeviceView {
    JobDeviceView {
        index,
        uuid: format!("GPU-0000000{index}-0000-0000-0000-000000000000"),
        model: "NVIDIA H200".to_owned(),
        limit_bytes,
        request_bytes: limit_bytes.unwrap_or(0),
        used_bytes: 3 << 30,
        peak_bytes: 4 << 30,
        granted_bytes: 8 << 30,
        denied: DeniedView::default(),
        limit_from: limit_bytes.map_or(String::new(), |_| "--mem 8GiB".to_owned()),
        request_from: String::new(),
        process_limit_bytes: None,
        process_limit_from: String::new(),
        overhead_bytes: 0,
        managed_bytes: 0,
        time: None,
    }
}

/// `j42` on GPU 3 with 8 GiB, by a private broker.
pub fn admitted() -> Admitted {
    Admitted {
        job: "j42".to_owned(),
        token: "ab".repeat(32),
        devices: vec![job_device(3, Some(8 << 30))],
        is_private: true,
        notes: Vec::new(),
        terms: TermsView::default(),
        pid: 77,
    }
}

/// A running job with everything that a job can have.
pub fn job(name: &str) -> JobView {
    JobView {
        job: "j42".to_owned(),
        name: Some(name.to_owned()),
        user: "alice".to_owned(),
        uid: 1000,
        state: "running".to_owned(),
        pid: 4121,
        command: [
            "python",
            "train.py",
            "--data",
            "a very long path/that does not end/soon enough",
        ]
        .map(str::to_owned)
        .into(),
        labels: vec![("team".to_owned(), "a".to_owned())],
        devices: vec![job_device(0, Some(8 << 30)), job_device(1, None)],
        clients: vec![ClientView {
            pid: 4121,
            state: "attached".to_owned(),
            used_bytes: vec![3 << 30, 0],
            overhead_bytes: vec![0, 0],
        }],
        denied: DeniedView {
            limit: 2,
            card_full: 0,
            no_broker: 0,
            overhead: 0,
            process_limit: 0,
            recovered: 0,
            total: 0,
        },
        started_ns: 1_795_213_560_000_000_000,
        is_strict: false,
        notes: vec!["pid 4130 uses a GPU without the limit".to_owned()],
        ended_ns: None,
        terms: TermsView::default(),
        end_reason: None,
        is_over_time: false,
        exit_code: None,
        unlimited: 0,
        container: None,
        engine: None,
        queued_ns: 90_000_000_000,
        suspends: 1,
        residence: [("running", 3_600_000_000_000), ("suspended", 60_000_000_000)]
            .map(|(state, spent_ns)| ResidenceView {
                state: state.to_owned(),
                spent_ns,
            })
            .to_vec(),
        checkpoint: Some(CheckpointView {
            bytes: 3 << 30,
            took_ns: 2_000_000_000,
            age_ns: 60_000_000_000,
        }),
    }
}

/// Everything that a driver can say of a GPU's state.
pub fn telemetry() -> TelemetryView {
    TelemetryView {
        memory_utilization: Some(0.4),
        power_limit_watts: Some(700.0),
        throttle_bits: Some(4),
        graphics_clock_mhz: Some(1755),
        memory_clock_mhz: Some(3201),
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(0),
        is_remap_pending: Some(false),
        has_remap_failed: Some(false),
        pcie_sent_bytes_per_second: Some(12 << 20),
        pcie_received_bytes_per_second: Some(3 << 30),
        nvlink_sent_bytes: Some(5 << 40),
        nvlink_received_bytes: Some(4 << 40),
        xids: Some(vec![XidView {
            xid: 13,
            count: 2,
            last_unix_ns: 1_795_213_560_000_000_000,
        }]),
    }
}

/// A GPU process of somebody else's.
pub fn unmanaged() -> UnmanagedView {
    UnmanagedView {
        pid: 77,
        uid: Some(1001),
        gpu: 1,
        used_bytes: 5 << 30,
        job: None,
        user: Some("carol".to_owned()),
        command: None,
        other_broker: None,
        busy: Some(0.48),
    }
}

/// A private broker with one device.
pub fn status(socket_dir: &Path) -> StatusView {
    StatusView {
        totals: Vec::new(),
        broker: BrokerView {
            pid: 4100,
            version: "0.1.0 (0123456789ab)".to_owned(),
            kind: "private".to_owned(),
            socket_dir: socket_dir.display().to_string(),
            is_admin: false,
            driver: "ok".to_owned(),
            jobs: 1,
            clients: 2,
            uptime_ns: 90_000_000_000,
            overcommit_percent: 100,
            compute_overcommit_percent: 100,
            max_class: "realtime".to_owned(),
            aliases_off: vec![],
            audit: AuditView {
                drift: "report".to_owned(),
                unmanaged: "deny-new".to_owned(),
                tolerance_bytes: 64 << 20,
            },
            config: None,
            notes: vec![],
            invariant_violations: 0,
            errors: Vec::new(),
            events_unwritten: 0,
            events_untold: 0,
            loop_ns: 0,
        },
        devices: vec![DeviceView {
            index: 3,
            uuid: "GPU-00000003-0000-0000-0000-000000000000".to_owned(),
            model: "NVIDIA H200".to_owned(),
            state: "ok".to_owned(),
            total_bytes: 141 << 30,
            usable_bytes: 140 << 30,
            committed_bytes: 8 << 30,
            used_bytes: 3 << 30,
            unmanaged_bytes: 0,
            unified: None,
            jobs: vec!["j42".to_owned()],
            promised_bytes: 8 << 30,
            denied: DeniedView::default(),
            notes: vec![],
            is_drained: false,
            drained: None,
            unmanaged_notes: vec![],
            promised_time: 0.0,
            regime: None,
            unmanaged_time: Some(0.0),
            utilization: Some(0.87),
            temperature_celsius: Some(64),
            power_watts: Some(412.5),
            throttle: vec!["power-cap".to_owned()],
            telemetry: Some(telemetry()),
            sick: None,
        }],
        queue: vec![],
    }
}

/// A refusal.
pub fn refusal(code: ErrorCode) -> Reply {
    Reply::Error(ErrorView {
        code,
        message: "it cannot be".to_owned(),
        hint: Some("try less".to_owned()),
        holders: vec![],
    })
}

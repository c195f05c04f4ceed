// SPDX-License-Identifier: Apache-2.0
//! Who is admitted where and when: promises, queue, placement, devices, live changes.

use crate::host::{Host, mem, uuid};
use partage_policy::Event;
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::units::{GIB, SECOND_NS};

fn on(gpu: &str, amount: &str) -> RunRequest {
    RunRequest {
        gpu: Some(gpu.into()),
        ..mem(amount)
    }
}

pub fn fail(request: RunRequest) -> RunRequest {
    RunRequest { wait: false, ..request }
}

fn visible(text: &str, request: RunRequest) -> RunRequest {
    RunRequest {
        visible_devices: Some(text.into()),
        ..request
    }
}

#[test]
fn four_jobs_of_a_quarter_fit_and_a_fifth_waits() {
    // Not a multiple of four times 2 MiB, on purpose.
    let mut host = Host::new(&[1]);
    host.devices[0].total_bytes = 143_771 * (1 << 20) + 12_345;
    host.enumerate();
    let jobs: Vec<_> = (0..4).map(|_| host.admitted(1, mem("25%"))).collect();
    let (fifth, _) = host.run(2, mem("25%"));
    assert!(host.is_waiting(fifth));
    let (job, process) = jobs[2];
    host.finish(job, process);
    assert!(host.job_of(fifth).is_some());
}

#[test]
fn a_job_that_never_fits_is_told_at_once() {
    let mut host = Host::new(&[16, 24]);
    let (ticket, _) = host.run(1, mem("25GiB"));
    let error = host.error_of(ticket);
    assert_eq!(error.code, ErrorCode::Impossible);
    assert!(error.message.contains("GPU 1 has 24 GiB"), "{}", error.message);
    let (ticket, _) = host.run(1, on("0", "20GiB"));
    assert_eq!(host.error_of(ticket).code, ErrorCode::Impossible);
    let (ticket, _) = host.run(1, on("auto:3", ""));
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoDevice);
}

#[test]
fn failing_names_the_holders_and_the_numbers() {
    let mut host = Host::new(&[16]);
    let (holder, _) = host.admitted(1, mem("10GiB"));
    let (ticket, _) = host.run(2, fail(mem("8GiB")));
    let error = host.error_of(ticket);
    assert_eq!(error.code, ErrorCode::NoRoom);
    assert!(
        error.message.contains("8 GiB") && error.message.contains("6 GiB of 16 GiB left"),
        "{}",
        error.message
    );
    assert_eq!(error.holders[0].who, holder.to_string());
    assert_eq!(error.holders[0].bytes, 10 * GIB);
}

#[test]
fn the_queue_is_first_come_first_served_per_device() {
    let mut host = Host::new(&[16, 16]);
    let (a, pa) = host.admitted(1, on("0", "12GiB"));
    let (large, _) = host.run(1, on("0", "10GiB"));
    let (small, _) = host.run(2, on("0", "2GiB"));
    assert!(host.is_waiting(large));
    assert!(
        host.is_waiting(small),
        "it would fit, and would starve the one before it"
    );
    let (other, _) = host.run(2, on("1", "2GiB"));
    assert!(host.job_of(other).is_some(), "another device has nothing to do with it");
    host.finish(a, pa);
    assert!(host.job_of(large).is_some() && host.job_of(small).is_some());
}

#[test]
fn a_wait_is_announced_at_once_and_every_minute_and_ends() {
    let mut host = Host::new(&[16]);
    host.admitted(1, mem("16GiB"));
    let (ticket, _) = host.run(
        1,
        RunRequest {
            wait_timeout_ns: Some(150 * SECOND_NS),
            ..mem("1GiB")
        },
    );
    assert_eq!(host.replies[&ticket].len(), 1);
    for minute in 1..=2 {
        host.pass(30 * SECOND_NS);
        assert_eq!(host.replies[&ticket].len(), minute);
        host.pass(30 * SECOND_NS);
        assert_eq!(host.replies[&ticket].len(), minute + 1);
    }
    assert_eq!(host.policy.next_deadline(), Some(1 + 150 * SECOND_NS));
    host.pass(30 * SECOND_NS);
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoRoom);
}

#[test]
fn a_caller_that_goes_away_gives_up_its_place() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(1, mem("16GiB"));
    let (gone, _) = host.run(1, mem("16GiB"));
    let (next, _) = host.run(1, mem("16GiB"));
    host.step(Event::TicketGone(gone));
    host.finish(a, pa);
    assert!(host.job_of(next).is_some() && host.job_of(gone).is_none());
}

#[test]
fn auto_takes_the_least_committed_device_with_room() {
    let mut host = Host::new(&[16, 16, 16]);
    let (first, _) = host.run(1, mem("4GiB"));
    assert_eq!(host.devices_of(first), [0]);
    let (second, _) = host.run(1, mem("8GiB"));
    assert_eq!(host.devices_of(second), [1]);
    let (third, _) = host.run(1, mem("12GiB"));
    assert_eq!(host.devices_of(third), [2]);
    let (fourth, _) = host.run(1, mem("8GiB"));
    assert_eq!(host.devices_of(fourth), [0], "4 of 16 is the least");
    let (both, _) = host.run(1, on("auto:2", "4GiB"));
    // 8 of 16, then the one of the two with 12 of 16 that has fewer jobs.
    assert_eq!(host.devices_of(both), [1, 2]);
}

#[test]
fn all_is_each_device_that_the_request_may_use() {
    let mut host = Host::new(&[16, 16, 16]);
    let (all, _) = host.run(1, on("all", "4GiB"));
    assert_eq!(host.devices_of(all), [0, 1, 2]);
    let (two, _) = host.run(1, visible("2,1", on("all", "4GiB")));
    assert_eq!(host.devices_of(two), [2, 1], "as CUDA_VISIBLE_DEVICES orders them");
    let no_wait = RunRequest {
        wait: false,
        ..on("all", "10GiB")
    };
    let (full, _) = host.run(1, no_wait);
    let error = host.error_of(full);
    assert_eq!(error.code, ErrorCode::NoRoom);
    assert!(error.message.contains("on each of all 3 devices"), "{}", error.message);
}

/// What is in use counts as what is promised does, whoever uses it.
#[test]
fn what_is_in_use_decides_where_a_job_goes() {
    for is_managed in [true, false] {
        let mut host = Host::new(&[16, 16]);
        if is_managed {
            let (free, process) = host.admitted(1, on("0", ""));
            let client = host.attach(free, process);
            assert!(host.allocate(client, 0, 10 * GIB));
        } else {
            host.strangers.insert(7, (uuid(1), 10 * GIB, None));
        }
        host.measure();
        let (promised, _) = host.run(1, on("1", "5GiB"));
        assert_eq!(host.devices_of(promised), [1]);
        let (next, _) = host.run(2, fail(mem("8GiB")));
        assert_eq!(
            host.devices_of(next),
            [1],
            "6 of 16 are left on the first: managed {is_managed}"
        );
    }
}

#[test]
fn jobs_without_a_promise_spread() {
    let mut host = Host::new(&[16, 16]);
    let (first, _) = host.run(1, mem(""));
    let (second, _) = host.run(1, mem(""));
    assert_eq!((host.devices_of(first), host.devices_of(second)), (vec![0], vec![1]));
}

#[test]
fn devices_are_named_by_index_uuid_and_prefix() {
    let mut host = Host::new(&[16, 16, 16]);
    let whole = uuid(2).to_string();
    for (gpu, devices) in [
        ("2", vec![2]),
        (whole.as_str(), vec![1]),
        ("GPU-0303", vec![2]),
        ("1,0", vec![1, 0]),
        ("gpu-01,2", vec![0, 2]),
    ] {
        let (ticket, _) = host.run(1, on(gpu, ""));
        assert_eq!(host.devices_of(ticket), devices, "{gpu}");
    }
    for (gpu, code) in [
        ("3", ErrorCode::NoDevice),
        ("GPU-ff", ErrorCode::NoDevice),
        ("GPU-0", ErrorCode::NoDevice),
        ("1,1", ErrorCode::Invalid),
        ("first", ErrorCode::Invalid),
        ("", ErrorCode::Invalid),
        ("-1", ErrorCode::Invalid),
        ("auto:0", ErrorCode::Invalid),
        ("auto:99", ErrorCode::Invalid),
        ("4294967296", ErrorCode::Invalid),
    ] {
        let (ticket, _) = host.run(1, on(gpu, ""));
        assert_eq!(host.error_of(ticket).code, code, "{gpu}");
    }
}

#[test]
fn cuda_visible_devices_narrows_and_orders() {
    let mut host = Host::new(&[16, 16, 16]);
    for (text, gpu, devices) in [
        ("1", "auto", vec![1]),
        ("2,1", "auto:2", vec![2, 1]),
        ("GPU-0303", "auto", vec![2]),
        ("1,7,0", "auto", vec![1]),
        ("0,1", "1", vec![1]),
    ] {
        let (ticket, _) = host.run(1, visible(text, on(gpu, "")));
        assert_eq!(host.devices_of(ticket), devices, "{text} {gpu}");
    }
    for (text, gpu) in [
        ("", "auto"),
        ("-1", "auto"),
        ("7", "auto"),
        ("1", "0"),
        ("1,1", "auto:2"),
    ] {
        let (ticket, _) = host.run(1, visible(text, on(gpu, "")));
        assert_eq!(host.error_of(ticket).code, ErrorCode::NoDevice, "{text} {gpu}");
    }
}

#[test]
fn amounts_are_judged_here_too() {
    let mut host = Host::new(&[16]);
    for (request, part) in [
        (mem("8"), "did you mean 8% or 8GiB"),
        (mem("0GiB"), "is zero"),
        (mem("200%"), "at most 100%"),
        (
            RunRequest {
                mem_request: Some("9GiB".into()),
                ..mem("8GiB")
            },
            "more than the limit",
        ),
        (
            RunRequest {
                name: Some("42".into()),
                ..mem("1GiB")
            },
            "bad name",
        ),
        (
            RunRequest {
                name: Some("j42".into()),
                ..mem("1GiB")
            },
            "job id",
        ),
    ] {
        let (ticket, _) = host.run(1, request);
        let error = host.error_of(ticket);
        assert_eq!(error.code, ErrorCode::Invalid);
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn unmanaged_use_counts_as_taken() {
    let mut host = Host::new(&[16]);
    host.strangers.insert(7, (uuid(1), 10 * GIB, None));
    host.measure();
    let (ticket, _) = host.run(1, fail(mem("8GiB")));
    let error = host.error_of(ticket);
    assert_eq!(error.holders[0].who, "pid 7");
    assert!(error.message.contains("6 GiB of 16 GiB left"), "{}", error.message);
    host.admitted(1, mem("6GiB"));
}

#[test]
fn use_without_a_process_counts_as_taken() {
    let mut host = Host::new(&[16]);
    let measured = partage_policy::Measurement {
        device: uuid(1),
        used_bytes: 10 * GIB,
        free_bytes: 6 * GIB,
        processes: Vec::new(),
        telemetry: partage_policy::Telemetry::default(),
    };
    host.step(Event::Measured(measured));
    let (ticket, _) = host.run(1, fail(mem("8GiB")));
    assert_eq!(host.error_of(ticket).holders[0].who, "processes not visible");
}

#[test]
fn promised_memory_is_withheld_from_jobs_without_a_promise() {
    let mut host = Host::new(&[16]);
    let (free, process) = host.admitted(1, mem(""));
    let client = host.attach(free, process);
    assert!(host.allocate(client, 0, 10 * GIB));
    let (ticket, _) = host.run(2, fail(mem("8GiB")));
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoRoom, "10 GiB are in use");
    let (promised, other) = host.admitted(2, mem("6GiB"));
    assert!(!host.allocate(client, 0, GIB), "the rest is promised");
    let second = host.attach(promised, other);
    assert!(host.allocate(second, 0, 6 * GIB));
    host.finish(promised, other);
    assert!(host.allocate(client, 0, 6 * GIB), "nothing is promised any more");
}

#[test]
fn jobs_without_a_promise_share_what_is_left() {
    let mut host = Host::new(&[16]);
    host.admitted(1, mem("4GiB"));
    let (a, pa) = host.admitted(1, mem(""));
    let (b, pb) = host.admitted(2, mem(""));
    let (ca, cb) = (host.attach(a, pa), host.attach(b, pb));
    assert!(host.allocate(ca, 0, 9 * GIB), "taken from the other's unused part");
    assert!(host.allocate(cb, 0, 3 * GIB));
    assert!(
        !host.allocate(cb, 0, GIB) && !host.allocate(ca, 0, GIB),
        "12 GiB are all there is"
    );
    host.free(ca, 0, 9 * GIB);
    assert!(
        host.allocate(cb, 0, 9 * GIB),
        "what one frees the other can have at once"
    );
}

#[test]
fn a_limit_above_the_promise_bursts_into_the_rest() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(
        1,
        RunRequest {
            mem_request: Some("2GiB".into()),
            ..mem("12GiB")
        },
    );
    let client = host.attach(a, pa);
    assert!(host.allocate(client, 0, 10 * GIB));
    let (b, pb) = host.admitted(2, mem("6GiB"));
    assert!(!host.allocate(client, 0, GIB));
    host.finish(b, pb);
    assert!(host.allocate(client, 0, 2 * GIB));
    assert!(!host.allocate(client, 0, GIB), "its limit");
}

#[test]
fn limits_change_live() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(1, mem("8GiB"));
    let client = host.attach(a, pa);
    assert!(host.allocate(client, 0, 8 * GIB));
    assert!(matches!(host.set(1, "j1", "12GiB"), Reply::Job(view) if view.devices[0].request_bytes == 12 * GIB));
    assert!(host.allocate(client, 0, 4 * GIB));
    host.is_excused = true;
    assert!(matches!(host.set(1, "j1", "25%"), Reply::Job(view) if view.state == "over limit"));
    assert!(!host.allocate(client, 0, 1));
    assert_eq!(host.used(client, 0), 12 * GIB, "nothing was taken away");
    host.free(client, 0, 9 * GIB);
    host.measure();
    assert_eq!(host.state_of(a), "running");
    host.is_excused = false;
    assert!(host.allocate(client, 0, GIB) && !host.allocate(client, 0, 1));
    host.admitted(2, mem("12GiB"));
    let Reply::Error(error) = host.set(1, "j1", "5GiB") else {
        panic!("there is no room")
    };
    assert_eq!(error.code, ErrorCode::NoRoom);
    assert!(matches!(host.set(1, "j1", "17GiB"), Reply::Error(error) if error.code == ErrorCode::Impossible));
    assert!(matches!(host.set(1, "j1", "8"), Reply::Error(error) if error.message.contains("8GiB")));
    assert!(matches!(host.set(2, "j1", "1GiB"), Reply::Error(error) if error.code == ErrorCode::NotAllowed));
}

#[test]
fn dry_run_admits_nothing() {
    let mut host = Host::new(&[16]);
    let (ticket, _) = host.run(
        1,
        RunRequest {
            dry_run: true,
            ..mem("16GiB")
        },
    );
    assert!(matches!(host.replies[&ticket].last(), Some(Reply::Done { message }) if message.contains("GPU 0")));
    host.admitted(1, mem("16GiB"));
    let (ticket, _) = host.run(
        1,
        RunRequest {
            dry_run: true,
            ..mem("16GiB")
        },
    );
    assert!(matches!(host.replies[&ticket].last(), Some(Reply::Done { message }) if message.contains("would wait")));
}

#[test]
fn no_driver_and_lost_devices_are_said() {
    let mut host = Host::new(&[]);
    let (ticket, _) = host.run(1, mem("1GiB"));
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoDriver);
    let mut host = Host::new(&[16]);
    let (a, _) = host.admitted(1, mem("1GiB"));
    host.step(Event::DeviceLost {
        device: uuid(1),
        why: "off the bus".into(),
    });
    let (ticket, _) = host.run(1, mem("1GiB"));
    assert!(host.error_of(ticket).message.contains("off the bus"));
    assert_eq!(host.state_of(a), "running");
    host.enumerate();
    let (ticket, _) = host.run(1, mem("1GiB"));
    assert!(host.is_waiting(ticket), "back, and not measured yet");
    host.measure();
    assert!(host.job_of(ticket).is_some());
}

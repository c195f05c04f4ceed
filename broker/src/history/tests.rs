// SPDX-License-Identifier: Apache-2.0
//! Files of events: order, bounds, what others see, and disks that refuse.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use partage_protocol::admin::{EventNumbers, EventView, EventsRequest, Reply};
use partage_protocol::frame;
use proptest::prelude::*;

use super::files::{Files, HISTORY_BYTES, KEPT_FOR};
use super::page::{Ask, page};
use super::thread::History;
use crate::peer::ConnectionId;
use crate::testing::Scratch;
use crate::watch::events::{EventLog, Recorded};
use crate::watch::services::Services;

/// An event of this user, with a text of so many bytes.
fn event(number: u64, uid: Option<u32>, length: usize) -> EventView {
    EventView {
        number,
        time_ns: number * 10,
        kind: if number.is_multiple_of(2) {
            "denied"
        } else {
            "job-ended"
        }
        .into(),
        uid,
        user: uid.map(|uid| format!("user{uid}")),
        job: Some(format!("j{}", number % 5)),
        pid: None,
        text: "x".repeat(length),
        numbers: EventNumbers::default(),
    }
}

/// As an administrator asks.
fn ask(request: EventsRequest) -> Ask {
    Ask {
        to: ConnectionId(1),
        viewer: Some(0),
        is_admin: true,
        request,
    }
}

/// All that the files have, page by page.
fn all(files: &Files, unwritten: &EventLog, mut ask: Ask) -> Vec<EventView> {
    let mut found = Vec::new();
    loop {
        let Reply::Events { events, more } = page(files, unwritten, &ask) else {
            panic!("a page")
        };
        found.extend(events);
        match more {
            Some(more) => assert!(ask.request.after.replace(more) < Some(more), "each page goes on"),
            None => return found,
        }
    }
}

fn numbers(events: &[EventView]) -> Vec<u64> {
    events.iter().map(|event| event.number).collect()
}

#[test]
fn events_are_there_for_the_next_broker_in_order_and_numbers_go_on() {
    let scratch = Scratch::new("history");
    let folder = scratch.path().join("events");
    let mut files = Files::open(&folder, HISTORY_BYTES).expect("made");
    assert_eq!(files.next_number(), 1);
    for number in 1..=3000 {
        let uid = [None, Some(5), Some(6)][number as usize % 3];
        files.add(uid, &event(number, uid, 10)).expect("written");
    }
    let files = Files::open(&folder, HISTORY_BYTES).expect("there");
    assert_eq!(files.next_number(), 3001);
    let found = all(&files, &EventLog::default(), ask(EventsRequest::default()));
    assert_eq!(numbers(&found), (1..=3000).collect::<Vec<u64>>());
    assert_eq!(found[4], event(5, Some(6), 10));
    // Brokers that come and go leave no file each.
    let count = || std::fs::read_dir(&folder).expect("listed").count();
    let before = count();
    for number in 3001..=3100 {
        let mut files = Files::open(&folder, HISTORY_BYTES).expect("there");
        files.add(Some(5), &event(number, Some(5), 10)).expect("written");
    }
    assert_eq!(count(), before);
    let mode = std::fs::metadata(&folder).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_cut_line_is_left_out_and_nothing_is_added_behind_it() {
    let scratch = Scratch::new("history");
    let mut files = Files::open(scratch.path(), HISTORY_BYTES).expect("made");
    files.add(Some(5), &event(1, Some(5), 10)).expect("written");
    let path = scratch.path().join("5.0000000000000001.jsonl");
    let mut file = OpenOptions::new().append(true).open(path).expect("there");
    file.write_all(b"{\"number\":2,\"ti").expect("written");
    // What is none of ours is not read and not touched.
    std::fs::write(scratch.path().join("notes.txt"), "mine").expect("written");
    let mut files = Files::open(scratch.path(), HISTORY_BYTES).expect("there");
    assert_eq!(files.next_number(), 2);
    files.add(Some(5), &event(2, Some(5), 10)).expect("written");
    let found = all(&files, &EventLog::default(), ask(EventsRequest::default()));
    assert_eq!(numbers(&found), [1, 2]);
    assert!(scratch.path().join("notes.txt").exists());
}

#[test]
fn a_user_with_many_events_pushes_out_its_own_and_never_more_than_the_bound_is_kept() {
    const MOST: u64 = 256 << 10;
    let scratch = Scratch::new("history");
    let mut files = Files::open(scratch.path(), MOST).expect("made");
    for number in 1..=20 {
        files.add(Some(6), &event(number, Some(6), 100)).expect("written");
    }
    for number in 21..=4000 {
        files.add(Some(5), &event(number, Some(5), 200)).expect("written");
    }
    assert!(size(scratch.path()) <= MOST, "{}", size(scratch.path()));
    let found = all(&files, &EventLog::default(), ask(EventsRequest::default()));
    assert_eq!(numbers(&found)[..20], (1..=20).collect::<Vec<u64>>());
    let newest = found.last().map(|event| event.number);
    assert_eq!(newest, Some(4000));
    assert!(found.len() > 500, "{}", found.len());
    // So many users that each has one file at most.
    for number in 4001..=4400 {
        let uid = Some(number as u32);
        files.add(uid, &event(number, uid, 2000)).expect("written");
    }
    assert!(size(scratch.path()) <= MOST, "{}", size(scratch.path()));
    let files = Files::open(scratch.path(), MOST / 2).expect("there");
    assert!(size(scratch.path()) <= MOST / 2, "a bound that was lowered holds");
    assert_eq!(files.next_number(), 4401);
}

fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("listed");
    files
        .map(|file| file.expect("listed").metadata().expect("there").len())
        .sum()
}

#[test]
fn what_is_too_old_goes() {
    let scratch = Scratch::new("history");
    let mut files = Files::open(scratch.path(), HISTORY_BYTES).expect("made");
    files.add(Some(5), &event(1, Some(5), 10)).expect("written");
    files.add(Some(6), &event(2, Some(6), 10)).expect("written");
    let old = std::fs::File::open(scratch.path().join("5.0000000000000001.jsonl")).expect("there");
    let then = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
    old.set_modified(then).expect("set");
    let files = Files::open(scratch.path(), HISTORY_BYTES).expect("there");
    let found = all(&files, &EventLog::default(), ask(EventsRequest::default()));
    assert_eq!(numbers(&found), [2]);
    assert_eq!(std::fs::read_dir(scratch.path()).expect("listed").count(), 1);
}

#[test]
fn others_see_kinds_alone_and_nothing_by_a_users_number() {
    let scratch = Scratch::new("history");
    let mut files = Files::open(scratch.path(), HISTORY_BYTES).expect("made");
    for (number, uid) in [(1, Some(5)), (2, Some(6)), (3, None)] {
        files.add(uid, &event(number, uid, 10)).expect("written");
    }
    let mut as_five = ask(EventsRequest::default());
    (as_five.viewer, as_five.is_admin) = (Some(5), false);
    let found = all(&files, &EventLog::default(), as_five.clone());
    let texts: Vec<(u64, bool, Option<u32>)> = found
        .iter()
        .map(|event| (event.number, event.text.is_empty(), event.uid))
        .collect();
    assert_eq!(texts, [(1, false, Some(5)), (2, true, None), (3, false, None)]);
    as_five.request.uid = Some(6);
    assert_eq!(all(&files, &EventLog::default(), as_five), []);
}

#[test]
fn a_disk_that_takes_nothing_costs_no_event_of_this_broker_and_is_told() {
    let scratch = Scratch::new("history");
    // A file stands where the folder is to be: as a disk that refuses.
    let folder = scratch.path().join("events");
    std::fs::write(&folder, "").expect("written");
    let services = Arc::new(Services::default());
    let files = Files::open(&folder, HISTORY_BYTES);
    let mut history = History::start((&folder, files), None, Arc::clone(&services)).expect("runs");
    for number in 1..=3 {
        history.record(&Recorded::new(Some(5), event(number, Some(5), 10)));
    }
    history.ask(0, ask(EventsRequest::default()));
    let deadline = Instant::now() + Duration::from_secs(20);
    let packets = loop {
        if let Some((_, packets)) = history.pages().pop() {
            break packets;
        }
        assert!(Instant::now() < deadline, "no answer");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut assembler = frame::Assembler::default();
    let whole = packets.iter().find_map(|packet| assembler.push(packet).expect("ours"));
    match serde_json::from_slice(&whole.expect("whole")).expect("a reply") {
        Reply::Events { events, more: None } => assert_eq!(numbers(&events), [1, 2, 3]),
        other => panic!("{other:?}"),
    }
    assert_eq!(services.unwritten(), 3);
    assert!(
        services.errors()[0].contains("events are not kept on disk"),
        "{:?}",
        services.errors()
    );
    history.finish();
}

proptest! {
    /// Pages give what a list would, whatever is asked, whoever wrote, and whatever is in memory alone.
    #[test]
    fn pages_give_what_a_list_gives(
        owners in proptest::collection::vec((0u8..4, any::<bool>()), 0..200),
        after in proptest::option::of(0u64..220),
        (since, until) in (proptest::option::of(0u64..2200), proptest::option::of(0u64..2200)),
        (uid, job) in (proptest::option::of(1u32..4), proptest::option::of(0u8..5)),
        kind in proptest::option::of(any::<bool>()),
        viewer in proptest::option::of(0u32..4),
    ) {
        let scratch = Scratch::new("history");
        let mut files = Files::open(scratch.path(), 1 << 20).expect("made");
        let (mut unwritten, mut list) = (EventLog::default(), Vec::new());
        for (number, (owner, is_written)) in (1..).zip(owners) {
            let owner = Some(u32::from(owner)).filter(|uid| *uid > 0);
            let view = event(number, owner, 700);
            match is_written {
                true => files.add(owner, &view).expect("written"),
                false => unwritten.push(Recorded::new(owner, view.clone())),
            }
            list.push((owner, view));
        }
        let request = EventsRequest {
            follow: false,
            after,
            since_ns: since,
            until_ns: until,
            uid,
            job: job.map(|job| format!("j{job}")),
            kinds: kind.map(|is| if is { "denied" } else { "job-ended" }.to_owned()).into_iter().collect(),
        };
        let mut asked = ask(request.clone());
        if let Some(viewer) = viewer {
            (asked.viewer, asked.is_admin) = (Some(viewer), false);
        }
        let shown = list.into_iter().map(|(owner, view)| {
            crate::watch::events::as_seen_by(view, owner, asked.viewer, asked.is_admin)
        });
        let expected: Vec<EventView> = shown.filter(|view| request.wants(view)).collect();
        prop_assert_eq!(all(&files, &unwritten, asked), expected);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Random processes that share, open, let go and die, against a model that keeps sums.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use crate::process::ProcessId;
use crate::seats::{self, pretend};
use crate::shared::Shared;

const CAPACITY: u64 = 1000;
const SEATS: usize = 4;
const DEVICES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        seat: usize,
        device: usize,
        bytes: u64,
    },
    Release {
        seat: usize,
        device: usize,
        part: u64,
    },
    Share {
        seat: usize,
        device: usize,
        part: u64,
    },
    Join {
        seat: usize,
        range: usize,
    },
    /// Opens through the one who made it.
    JoinOf {
        seat: usize,
        range: usize,
    },
    LetGo {
        seat: usize,
        range: usize,
    },
    Adopt {
        seat: usize,
        device: usize,
        bytes: u64,
    },
    Die {
        seat: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (seat, device, range) = (0..SEATS, 0..DEVICES, 0..32_usize);
    let bytes = 1..CAPACITY;
    prop_oneof![
        (seat.clone(), device.clone(), bytes.clone()).prop_map(|(seat, device, bytes)| Step::Reserve {
            seat,
            device,
            bytes
        }),
        (seat.clone(), device.clone(), 1..4_u64).prop_map(|(seat, device, part)| Step::Release { seat, device, part }),
        (seat.clone(), device.clone(), 1..4_u64).prop_map(|(seat, device, part)| Step::Share { seat, device, part }),
        (seat.clone(), range.clone()).prop_map(|(seat, range)| Step::Join { seat, range }),
        (seat.clone(), range.clone()).prop_map(|(seat, range)| Step::JoinOf { seat, range }),
        (seat.clone(), range).prop_map(|(seat, range)| Step::LetGo { seat, range }),
        (seat.clone(), device, bytes).prop_map(|(seat, device, bytes)| Step::Adopt { seat, device, bytes }),
        seat.prop_map(|seat| Step::Die { seat }),
    ]
}

/// What the table should say.
#[derive(Default)]
struct Model {
    alone: BTreeMap<(usize, usize), u64>,
    ranges: Vec<Known>,
}

struct Known {
    id: RangeId,
    device: usize,
    bytes: u64,
    maker: usize,
    payer: Option<usize>,
    holders: BTreeSet<usize>,
}

impl Known {
    /// A holder goes; the one with the lowest place pays instead of it.
    fn leave(&mut self, seat: usize, places: &[usize]) {
        self.holders.remove(&seat);
        if self.payer == Some(seat) {
            self.payer = self.holders.iter().copied().min_by_key(|holder| places[*holder]);
        }
    }
}

impl Model {
    fn used(&self, device: usize) -> u64 {
        let alone = self
            .alone
            .iter()
            .filter(|((_, of), _)| *of == device)
            .map(|(_, bytes)| bytes);
        let live = self
            .ranges
            .iter()
            .filter(|range| range.device == device && !range.holders.is_empty());
        alone.sum::<u64>() + live.map(|range| range.bytes).sum::<u64>()
    }

    fn alone(&mut self, seat: usize, device: usize) -> &mut u64 {
        self.alone.entry((seat, device)).or_default()
    }

    fn enter(&mut self, id: RangeId, seat: usize, device: usize, bytes: u64) {
        let holders = BTreeSet::from([seat]);
        self.ranges.push(Known {
            id,
            device,
            bytes,
            payer: Some(seat),
            maker: seat,
            holders,
        });
    }
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(steps: &[Step]) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = File(std::env::temp_dir().join(format!("partage-ranges-{}-{number}", std::process::id())));
    let shared = Shared::<Seats>::open(&file.0, |_| ()).expect("made");
    let mut model = Model::default();
    let mut places: Vec<usize> = (0..SEATS)
        .map(|_| seats::take(&shared, ProcessId::current(), Dead::Leave).expect("a seat"))
        .collect();
    for step in steps {
        apply(&shared, &mut model, &mut places, step);
        for device in 0..DEVICES {
            let guard = shared.lock();
            sweep(&guard, Dead::Leave);
            assert_eq!(guard.used(device), model.used(device), "{step:?}");
            assert!(guard.used(device) <= CAPACITY, "{step:?}");
            // Each live range is paid once, and the others not at all.
            let of_device = || model.ranges.iter().filter(|range| range.device == device);
            for range in of_device() {
                let payer = guard
                    .range(range.id)
                    .and_then(|range| range.payer(|seat| guard.is_taken(seat)));
                assert_eq!(payer, range.payer.map(|payer| places[payer]), "{step:?}");
            }
            let live = of_device().filter(|range| range.payer.is_some()).count();
            assert_eq!(guard.paid(device).count(), live, "{step:?}");
        }
    }
}

fn apply(shared: &Shared<Seats>, model: &mut Model, places: &mut [usize], step: &Step) {
    let pick = |model: &Model, range: usize| (!model.ranges.is_empty()).then(|| range % model.ranges.len());
    match *step {
        Step::Reserve { seat, device, bytes } => {
            let fits = model.used(device) + bytes <= CAPACITY;
            let done = seats::reserve(shared, places[seat], device, bytes, CAPACITY, Dead::Leave);
            assert_eq!(done.is_ok(), fits, "{step:?}");
            if fits {
                *model.alone(seat, device) += bytes;
            }
        }
        Step::Release { seat, device, part } => {
            let bytes = *model.alone(seat, device) / part;
            seats::release(shared, places[seat], device, bytes);
            *model.alone(seat, device) -= bytes;
        }
        Step::Share { seat, device, part } => {
            let bytes = *model.alone(seat, device) / part;
            let id = share(&shared.lock(), places[seat], device, bytes, Dead::Leave).expect("room in the table");
            *model.alone(seat, device) -= bytes;
            model.enter(id, seat, device, bytes);
        }
        Step::Join { seat, range } => {
            let Some(range) = pick(model, range) else { return };
            let known = &mut model.ranges[range];
            let joined = join(&shared.lock(), places[seat], known.id, None, Dead::Leave);
            assert_eq!(joined, !known.holders.is_empty(), "{step:?}");
            known.holders.extend(joined.then_some(seat));
        }
        Step::JoinOf { seat, range } => {
            let Some(range) = pick(model, range) else { return };
            let known = &mut model.ranges[range];
            let maker = Some(places[known.maker]);
            let joined = join(&shared.lock(), places[seat], known.id, maker, Dead::Leave);
            assert_eq!(joined, known.holders.contains(&known.maker), "{step:?}");
            known.holders.extend(joined.then_some(seat));
        }
        Step::LetGo { seat, range } => {
            let Some(range) = pick(model, range) else { return };
            let known = &mut model.ranges[range];
            known.leave(seat, places);
            let was_last = let_go(&shared.lock(), places[seat], known.id, Dead::Leave);
            assert_eq!(was_last, known.holders.is_empty(), "{step:?}");
            assert_eq!(is_held(&shared.lock(), known.id, Dead::Leave), !was_last);
        }
        Step::Adopt { seat, device, bytes } => {
            let fits = model.used(device) + bytes <= CAPACITY;
            let made = adopt(&shared.lock(), places[seat], device, bytes, CAPACITY, Dead::Leave);
            assert_eq!(made.is_ok(), fits, "{step:?}");
            if let Ok(id) = made {
                model.enter(id, seat, device, bytes);
            }
        }
        Step::Die { seat } => {
            // Beyond any pid of this kernel: nobody has it.
            pretend(&shared.lock(), places[seat], u64::from(u32::MAX >> 1));
            model.alone.retain(|(of, _), _| *of != seat);
            model.ranges.iter_mut().for_each(|range| range.leave(seat, places));
            // Another process comes, and may get the same seat; nothing of the old one is in it.
            sweep(&shared.lock(), Dead::Leave);
            places[seat] = seats::take(shared, ProcessId::current(), Dead::Leave).expect("a seat");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn the_total_is_the_sum_of_what_the_living_hold(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}

#[test]
fn a_payer_that_took_over_stays_the_payer() {
    let file = File(std::env::temp_dir().join(format!("partage-payer-{}", std::process::id())));
    let shared = Shared::<Seats>::open(&file.0, |_| ()).expect("made");
    let places: Vec<usize> = (0..4)
        .map(|_| seats::take(&shared, ProcessId::current(), Dead::Leave).expect("a seat"))
        .collect();
    seats::reserve(&shared, places[3], 0, 10, CAPACITY, Dead::Leave).expect("room");
    let id = share(&shared.lock(), places[3], 0, 10, Dead::Leave).expect("room");
    let payer = || shared.lock().paid(0).map(|(seat, _)| seat).collect::<Vec<_>>();
    for late in [2, 1] {
        assert!(join(&shared.lock(), places[late], id, None, Dead::Leave));
        assert_eq!(payer(), [places[3]], "who made it");
    }
    assert!(!let_go(&shared.lock(), places[3], id, Dead::Leave));
    assert_eq!(payer(), [places[1]], "the lowest seat");
    assert!(join(&shared.lock(), places[0], id, None, Dead::Leave));
    assert_eq!(payer(), [places[1]], "still");
    pretend(&shared.lock(), places[1], u64::from(u32::MAX >> 1));
    assert_eq!(payer(), [places[1]], "dead, and nobody has looked");
    sweep(&shared.lock(), Dead::Linger);
    assert_eq!(payer(), [places[1]], "it lingers");
    sweep(&shared.lock(), Dead::Leave);
    assert_eq!(payer(), [places[0]]);
    assert!(!let_go(&shared.lock(), places[0], id, Dead::Leave));
    assert_eq!(payer(), [places[2]]);
    assert!(let_go(&shared.lock(), places[2], id, Dead::Leave));
    assert_eq!(payer(), []);
    assert!(!join(&shared.lock(), places[0], id, None, Dead::Leave), "gone for good");
}

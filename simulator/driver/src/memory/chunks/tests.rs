// SPDX-License-Identifier: Apache-2.0
//! The block allocator against a list of single granules that knows whose each one is.

use proptest::prelude::*;

use super::*;

const GRANULE: u64 = 512;

#[test]
fn neighbours_are_joined_and_the_smallest_place_is_taken() {
    let mut chunks = Chunks::<u8>::default();
    chunks.add(0, 4096, 4096);
    chunks.add(8192, 2048, 2048);
    assert_eq!((chunks.reserved(), chunks.chunks.len()), (6144, 2));
    let any = |_: &u8| false;
    assert_eq!(
        chunks.take(2048, any),
        Some((8192, vec![])),
        "the smaller of two places"
    );
    let taken: Vec<_> = (0..4).map(|_| chunks.take(1024, any).expect("room").0).collect();
    assert_eq!(taken, [0, 1024, 2048, 3072]);
    assert_eq!(chunks.take(512, any), None);
    chunks.give(1024, 1024, None);
    chunks.give(3072, 1024, None);
    assert_eq!(chunks.take(2048, any), None, "they do not touch");
    chunks.give(2048, 1024, None);
    assert_eq!(chunks.blocks.len(), 1);
    assert_eq!(chunks.take(2560, any), Some((1024, vec![])));
    assert_eq!(chunks.release(0), [], "a part of each is used");
}

#[test]
fn tagged_blocks_are_taken_only_by_those_who_may() {
    let mut chunks = Chunks::default();
    chunks.add(0, 4096, 1024);
    assert_eq!(
        chunks.take(4096, |_| false),
        Some((0, vec![])),
        "chunks that touch hold one block"
    );
    chunks.give(0, 1024, Some(1));
    chunks.give(1024, 1024, Some(2));
    chunks.give(2048, 2048, None);
    assert_eq!(chunks.take(4096, |&tag| tag == 1), None);
    assert_eq!(chunks.take(3072, |&tag| tag == 2), Some((1024, vec![2])));
    assert_eq!(chunks.take(512, |&tag| tag == 1), Some((0, vec![1])));
    assert_eq!(chunks.release(0), [], "a tagged block is not given back");
    chunks.ripen(|&tag| tag == 1);
    chunks.give(0, 512, None);
    assert_eq!(chunks.release(4096), [], "no more than is wished");
    assert_eq!(chunks.release(3072), [(0, 1024)]);
    assert_eq!(chunks.reserved(), 3072);
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64),
    Take(u64, u8),
    Give(usize, Option<u8>),
    Ripen(u8),
    Release(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..12u64).prop_map(Step::Add),
        6 => (1..9u64, 0..3u8).prop_map(|(bytes, user)| Step::Take(bytes, user)),
        5 => (any::<usize>(), prop::option::of(0..3u8)).prop_map(|(which, tag)| Step::Give(which, tag)),
        2 => (0..3u8).prop_map(Step::Ripen),
        1 => (0..40u64).prop_map(Step::Release),
    ]
}

proptest! {
    /// Nothing is handed out twice, neighbours are always joined, what is reserved is the sum of the chunks, and
    /// everything that is free and may be used can be had in one piece where it lies in one piece.
    #[test]
    fn blocks_agree_with_a_list_of_granules(steps in prop::collection::vec(step(), 0..200)) {
        let mut chunks = Chunks::<u8>::default();
        // Offset of each granule to its state: used, or free with a tag.
        let mut granules: BTreeMap<u64, Result<Option<u8>, ()>> = BTreeMap::new();
        let mut used: Vec<(u64, u64)> = Vec::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Add(count) => {
                    chunks.add(next, count * GRANULE, 4 * GRANULE);
                    granules.extend((0..count).map(|i| (next + i * GRANULE, Ok(None))));
                    // Some touch the one before, some do not.
                    next += (count + count % 2) * GRANULE;
                }
                Step::Take(count, user) => {
                    let bytes = count * GRANULE;
                    let is_free = |at: u64| (0..count).all(|i| match granules.get(&(at + i * GRANULE)) {
                        Some(Ok(tag)) => tag.is_none_or(|tag| tag == user),
                        _ => false,
                    });
                    let could = granules.keys().any(|&at| is_free(at));
                    let found = chunks.take(bytes, |&tag| tag == user);
                    prop_assert_eq!(found.is_some(), could);
                    if let Some((at, tags)) = found {
                        prop_assert!(is_free(at), "{at} is somebody's");
                        prop_assert!(tags.iter().all(|&tag| tag == user));
                        granules.extend((0..count).map(|i| (at + i * GRANULE, Err(()))));
                        used.push((at, bytes));
                    }
                }
                Step::Give(which, tag) if !used.is_empty() => {
                    let (at, bytes) = used.swap_remove(which % used.len());
                    chunks.give(at, bytes, tag);
                    granules.extend((0..bytes / GRANULE).map(|i| (at + i * GRANULE, Ok(tag))));
                }
                Step::Give(..) => {}
                Step::Ripen(over) => {
                    chunks.ripen(|&tag| tag == over);
                    for state in granules.values_mut() {
                        if *state == Ok(Some(over)) { *state = Ok(None); }
                    }
                }
                Step::Release(keep) => {
                    let before = chunks.reserved();
                    for (start, length) in chunks.release(keep * GRANULE) {
                        for at in (start..start + length).step_by(GRANULE as usize) {
                            prop_assert_eq!(granules.remove(&at), Some(Ok(None)));
                        }
                    }
                    prop_assert!(chunks.reserved() >= before.min(keep * GRANULE));
                }
            }
            prop_assert_eq!(chunks.reserved(), granules.len() as u64 * GRANULE);
            let mut last: Option<(u64, Option<u8>)> = None;
            let mut free = 0;
            for (&start, block) in &chunks.blocks {
                prop_assert!(last.is_none_or(|(end, tag)| end < start || end == start && tag != block.tag));
                for at in (start..block.end).step_by(GRANULE as usize) {
                    prop_assert_eq!(granules.get(&at), Some(&Ok(block.tag)));
                    free += 1;
                }
                last = Some((block.end, block.tag));
            }
            prop_assert_eq!(free, granules.values().filter(|state| state.is_ok()).count());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Who gets memory that was freed in stream order.

use super::*;

#[test]
fn memory_freed_in_a_stream_is_reached_by_what_was_submitted_before() {
    in_child(
        "pools::reuse::memory_freed_in_a_stream_is_reached_by_what_was_submitted_before",
        |cuda| {
            cuda.context(0);
            let (before, stream, pool) = (cuda.used(), stream(cuda), default_pool(cuda));
            let address = allocate(cuda, 10 * MIB, stream);
            assert_eq!((cuda.used(), used(cuda, pool)), (before + CHUNK, 10 * MIB));
            // Page-locked: a copy from or to other memory would wait for the stream itself.
            let mut host = std::ptr::null_mut();
            ok!(cuda, cuMemHostAlloc(&mut host, 512, 0));
            // SAFETY: 512 bytes of ordinary memory that start as zero.
            let (there, back) = unsafe { (host.cast::<[u8; 256]>(), host.cast::<[u8; 256]>().add(1)) };
            // SAFETY: as above, and nothing else touches them yet.
            unsafe { there.write([5; 256]) };
            hold(cuda, stream, 1);
            ok!(cuda, cuMemcpyHtoDAsync_v2(address + 9 * MIB, there.cast(), 256, stream));
            ok!(cuda, cuMemcpyDtoHAsync_v2(back.cast(), address + 9 * MIB, 256, stream));
            free(cuda, address, stream);
            refused!(INVALID_VALUE: cuda, cuMemFreeAsync(address, stream));
            assert_eq!(used(cuda, pool), 0, "counted from the call");
            // The stream's next allocation takes the same place; the copies still reach beyond it.
            let again = allocate(cuda, MIB, stream);
            assert_eq!((again, cuda.used()), (address, before + CHUNK));
            pass(1);
            ok!(cuda, cuStreamSynchronize(stream));
            // SAFETY: the stream has done its copies.
            assert_eq!(unsafe { back.read() }, [5; 256]);
            assert_eq!(cuda.used(), before + CHUNK, "still used");
            let (mut base, mut bytes) = (0, 0);
            ok!(cuda, cuMemGetAddressRange_v2(&mut base, &mut bytes, again));
            assert_eq!((base, bytes as u64), (again, MIB));
            refused!(NOT_FOUND: cuda, cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 9 * MIB));
            free(cuda, again, stream);
            refused!(INVALID_VALUE: cuda, cuMemFree_v2(again));
            ok!(cuda, cuStreamSynchronize(stream));
            assert_eq!(cuda.used(), before);
            ok!(cuda, cuMemFreeAsync(0, stream));
            refused!(INVALID_VALUE: cuda, cuMemAllocAsync(&mut 0, 0, stream));
            refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut 0, 1 << 40, stream));
            refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut 0, usize::MAX, stream));
            assert_eq!(cuda.used(), before);
        },
    );
}

/// What has become of a free when another stream asks for its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Free {
    Pending,
    Done,
    Seen,
}

/// One way to ask.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The rules of reuse that are on, a bit each: events, luck, waiting.
    rules: u32,
    free: Free,
    /// The other stream waits for an event behind the free.
    is_ordered: bool,
    /// Of the held stream.
    number: usize,
}

impl Question {
    /// Whether the memory may be used at once, and whether it is given out to be waited for.
    fn expected(self) -> (bool, bool) {
        let follows = self.rules & 1 != 0 && self.is_ordered;
        let has_luck = self.rules & 2 != 0 && self.free == Free::Done;
        let is_free = follows || has_luck || self.free == Free::Seen;
        (is_free, !is_free && self.rules & 4 != 0)
    }

    /// A pool with these rules, and with room for one chunk, so that what is not reused is refused.
    fn pool(self, cuda: &Cuda) -> CuMemoryPool {
        let pool = own_pool(cuda, CHUNK);
        let rules = [
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
            CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        ];
        for (place, &rule) in rules.iter().enumerate() {
            let mut is_on = c_int::from(self.rules & 1 << place != 0);
            ok!(cuda, cuMemPoolSetAttribute(pool, rule, (&raw mut is_on).cast()));
        }
        set(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
        pool
    }

    /// Frees a chunk in the first stream and lets it become what is asked about.
    fn free(self, cuda: &Cuda, address: u64, [first, second]: [CuStream; 2], event: CuEvent) {
        hold(cuda, first, self.number);
        free(cuda, address, first);
        ok!(cuda, cuEventRecord(event, first));
        if self.is_ordered {
            ok!(cuda, cuStreamWaitEvent(second, event, 0));
        }
        match self.free {
            Free::Pending => {}
            Free::Done => {
                pass(self.number as u32);
                // Not a synchronisation: the program only asks.
                while code!(cuda, cuStreamQuery(first)) == CuResult::NOT_READY {}
            }
            Free::Seen => {
                pass(self.number as u32);
                ok!(cuda, cuEventSynchronize(event));
            }
        }
    }

    fn judge(self, cuda: &Cuda) {
        let pool = self.pool(cuda);
        let [first, second] = [stream(cuda), stream(cuda)];
        let mut event = CuEvent::NULL;
        ok!(cuda, cuEventCreate(&mut event, 2));
        let address = allocate_from(cuda, CHUNK, pool, first);
        self.free(cuda, address, [first, second], event);
        let (is_free, waits) = self.expected();
        let mut other = 0;
        let answer = code!(cuda, cuMemAllocFromPoolAsync(&mut other, CHUNK as usize, pool, second));
        if is_free || waits {
            assert_eq!((answer, other), (CuResult::SUCCESS, address), "{self:?}");
            // Memory that it must wait for holds the stream up; other memory does not.
            ok!(cuda, cuMemsetD8Async(other, 1, 512, second));
            if self.free == Free::Pending {
                assert_eq!(code!(cuda, cuStreamQuery(second)), CuResult::NOT_READY, "{self:?}");
            }
        } else {
            assert_eq!(answer, CuResult::OUT_OF_MEMORY, "{self:?}");
            // The stream that freed it may take it whatever the rules say.
            assert_eq!(allocate_from(cuda, CHUNK, pool, first), address, "{self:?}");
        }
        pass(self.number as u32);
        ok!(cuda, cuCtxSynchronize());
        ok!(cuda, cuMemFree_v2(address));
        ok!(cuda, cuMemPoolDestroy(pool));
        ok!(cuda, cuStreamDestroy_v2(first));
        ok!(cuda, cuStreamDestroy_v2(second));
        ok!(cuda, cuEventDestroy_v2(event));
    }
}

/// What another stream gets of memory whose free has not happened, or has: by event, by luck, or by waiting.
#[test]
fn rules_of_reuse_decide_who_gets_freed_memory() {
    in_child("pools::reuse::rules_of_reuse_decide_who_gets_freed_memory", |cuda| {
        cuda.context(0);
        let mut number = 0;
        for rules in 0..8 {
            for (free, is_ordered) in [
                (Free::Pending, false),
                (Free::Pending, true),
                (Free::Done, false),
                (Free::Done, true),
                (Free::Seen, false),
            ] {
                number += 1;
                let question = Question {
                    rules,
                    free,
                    is_ordered,
                    number,
                };
                question.judge(cuda);
            }
        }
        assert_eq!(reserved(cuda, default_pool(cuda)), 0);
    });
}

#[test]
fn memory_pending_in_another_stream_is_not_taken_while_the_pool_can_grow() {
    in_child(
        "pools::reuse::memory_pending_in_another_stream_is_not_taken_while_the_pool_can_grow",
        |cuda| {
            cuda.context(0);
            let [first, second] = [stream(cuda), stream(cuda)];
            let address = allocate(cuda, CHUNK, first);
            hold(cuda, first, 1);
            free(cuda, address, first);
            assert_ne!(allocate(cuda, CHUNK, second), address);
            assert_eq!(reserved(cuda, default_pool(cuda)), 2 * CHUNK);
            ok!(cuda, cuStreamSynchronize(second));
            assert_eq!(
                reserved(cuda, default_pool(cuda)),
                2 * CHUNK,
                "the free has not happened"
            );
            assert_eq!(allocate(cuda, CHUNK, first), address);
            pass(1);
        },
    );
}

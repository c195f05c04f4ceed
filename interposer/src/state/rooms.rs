// SPDX-License-Identifier: Apache-2.0
//! The rooms of the wiped page: what one part of the library remembers there, and no other part knows.
//!
//! Each [`Owner`] has one, beside [`State`](super::State)'s own words. The owner alone says what lies there, and has
//! the function that leads there; here stands how long the room is. Whoever has the state has every room: the page is
//! there as a whole or not at all, and the way to a room is one addition.

use core::cell::UnsafeCell;

/// Whose a room is. In this order they lie: first what lies on pages of its own, then what calls look at most.
#[derive(Clone, Copy)]
pub enum Owner {
    /// `attachment`: what ties this process to a broker.
    Attachment,
    /// `stream`: whether streams are to be asked.
    Streams,
    /// `memory`: what every hook looks at before the tables.
    Pools,
    /// `explain`: what was explained.
    Explained,
    /// `thread`: whether there is one.
    Thread,
    /// `connection`: what is said on it.
    Connection,
    /// `job_word`: this process's record.
    Record,
    /// `lazy`: what NVML shows before an admission.
    Foreseen,
    /// `memory`: what is on record.
    Tables,
}

/// The length of each room, at least that of what lies there.
const BYTES: [usize; 9] = [12288, 64, 576, 576, 64, 768, 1152, 2176, 2816];
/// What no room needs less of at its beginning; the first may need a page.
const ALIGN: usize = 64;
const ALL: usize = start(BYTES.len());

/// Where a room begins.
const fn start(owner: usize) -> usize {
    let (mut at, mut before) = (0, 0);
    while before < owner {
        assert!(BYTES[before].is_multiple_of(ALIGN));
        at += BYTES[before];
        before += 1;
    }
    at
}

/// What lies in a room.
///
/// # Safety
/// - No other type names this owner.
/// - All-zero memory is a value.
pub unsafe trait Room: Sync + Sized {
    /// Whose it is.
    const OWNER: Owner;
}

/// All rooms.
#[repr(C, align(4096))]
pub struct Rooms(UnsafeCell<[u8; ALL]>);

// SAFETY: nothing but shared references to what may be shared leads into it: `Rooms::of`.
unsafe impl Sync for Rooms {}

impl Rooms {
    /// What lies in the room of `T`'s owner.
    #[inline(always)]
    pub fn of<T: Room>(&self) -> &T {
        const {
            assert!(size_of::<T>() <= BYTES[T::OWNER as usize], "the room is too small");
            assert!(
                align_of::<Self>().is_multiple_of(align_of::<T>())
                    && start(T::OWNER as usize).is_multiple_of(align_of::<T>())
            );
        }
        // SAFETY: a room of these bytes, of which each is in one room only; it begins where a `T` may.
        let room = unsafe { self.0.get().cast::<u8>().add(const { start(T::OWNER as usize) }) };
        // SAFETY: as long as a `T`, zero at first, which is a value; no other type lies there (`Room`), and a `T` is
        // reached by shared references alone.
        unsafe { &*room.cast::<T>() }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Memory in the place of other memory, when the kernel fails halfway.
//!
//! `mremap` with a fixed address first takes away what lies there. Without memory for its own tables, or for the
//! account that it keeps where memory is not overcommitted, it fails after that and leaves a hole, and the next thread
//! that looks there dies of it. So the same account is proved first, and a hole is filled again by a copy in place.

/// Where the new memory ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// In place.
    Moved,
    /// Where it was; a private copy of what is in it is in place.
    Copied,
    /// Where it was, and what was in place is there still; or, where others took the hole, nothing is.
    Not,
}

/// What a kernel does for it, with one piece of memory and its place.
pub trait Kernel {
    /// Is as much private memory to be had as the kernel accounts for meanwhile? Gives it back.
    fn has_room(&mut self) -> bool;
    /// Moves the memory into its place; `false` where the kernel failed.
    fn remap(&mut self) -> bool;
    /// Does memory lie in all of the place?
    fn is_whole(&mut self) -> bool;
    /// Puts private memory into the hole and copies into it.
    fn fill(&mut self) -> Filled;
    /// Waits for a moment.
    fn rest(&mut self);
}

/// What became of a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// It is filled.
    Done,
    /// Other memory of the program lies there.
    Taken,
    /// The kernel has none at the moment.
    Short,
}

/// Exchanges. A hole is never left while the kernel can fill it: whoever needs that memory waits rather than dies.
pub fn exchange(kernel: &mut impl Kernel) -> Exchanged {
    if !kernel.has_room() {
        return Exchanged::Not;
    }
    if kernel.remap() {
        return Exchanged::Moved;
    }
    if kernel.is_whole() {
        return Exchanged::Not;
    }
    loop {
        match kernel.fill() {
            Filled::Done => return Exchanged::Copied,
            Filled::Taken => return Exchanged::Not,
            Filled::Short => kernel.rest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with `room` for that many more mappings, which fails at the n-th thing that it is asked for.
    struct Failing {
        has_room: bool,
        /// Fails before the place is taken away, after that, or not.
        remap: Option<bool>,
        short: u32,
        is_taken: bool,
        is_whole: bool,
        rests: u32,
    }

    impl Kernel for Failing {
        fn has_room(&mut self) -> bool {
            self.has_room
        }

        fn remap(&mut self) -> bool {
            self.is_whole = self.remap != Some(true);
            self.remap.is_none()
        }

        fn is_whole(&mut self) -> bool {
            self.is_whole
        }

        fn fill(&mut self) -> Filled {
            assert!(!self.is_whole, "what lies there is not to be copied over");
            if self.is_taken {
                return Filled::Taken;
            }
            if self.short > 0 {
                self.short -= 1;
                return Filled::Short;
            }
            self.is_whole = true;
            Filled::Done
        }

        fn rest(&mut self) {
            self.rests += 1;
        }
    }

    #[test]
    fn however_the_kernel_fails_the_place_is_whole_unless_others_took_it() {
        for has_room in [true, false] {
            for remap in [None, Some(false), Some(true)] {
                for short in [0, 1, 5] {
                    for is_taken in [false, true] {
                        let mut kernel = Failing {
                            has_room,
                            remap,
                            short,
                            is_taken,
                            is_whole: true,
                            rests: 0,
                        };
                        let expected = match (has_room, remap, is_taken) {
                            (false, ..) | (_, Some(false), _) | (_, Some(true), true) => Exchanged::Not,
                            (_, None, _) => Exchanged::Moved,
                            (_, Some(true), false) => Exchanged::Copied,
                        };
                        let is_lost = has_room && remap == Some(true) && is_taken;
                        assert_eq!(exchange(&mut kernel), expected);
                        assert_eq!(kernel.is_whole, !is_lost);
                        let is_short = expected == Exchanged::Copied;
                        assert_eq!(kernel.rests, if is_short { short } else { 0 });
                    }
                }
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The account of one memory pool: how much of U stands for what the pool reserves of its device.
//!
//! A pool keeps what programs free and hands it out again, and grows in steps of its own choice; so the charge is not
//! what programs ask for but what the driver reports as reserved. All in bytes:
//! - **real**: what the pool reserves, known to the driver alone; read without any lock, so every reading is old;
//! - **C**: the last reading that was taken over;
//! - **P**: the sum of the reservations of calls that are under way;
//! - **A**: what is charged in U for the pool;
//! - the *claimed* part of A: growth beyond every reservation, for which U is still to be raised.
//!
//! ```text
//!   begin(r)    U += r (or no call), then P += r, A += r        may be without a reservation: r = 0
//!   the driver allocates, and the pool grows or does not
//!   read R      no lock held
//!   settle      stale if another thread settled since the call began or since the last reading: read again
//!               C := R, P -= r, A := min(R + P, max(A, R)), but never below what is claimed
//!               A fell: U falls by as much. A rose: that much is claimed; U is raised, then own, or disown when it
//!               cannot be. A thread that owns after another has settled reads and settles again.
//! ```
//! Invariants, checked over every interleaving of small cases (`protocol/tests/pool_every_interleaving.rs`):
//! 1. A ≥ real at every instant, as long as no call makes the pool grow by more than it reserved;
//! 2. A = real when nothing is under way, provided that U could be raised where it had to be and that whoever made
//!    the pool shrink has settled;
//! 3. nothing here panics or overflows, whatever the driver answers.
//!
//! A call that got memory which the pool is known to reserve already needs no reading ([`PoolAccount::end_unused`]):
//! memory that was handed out before, when no reading since has shown the pool to be smaller.
//!
//! Why A is bounded by max(A, R) as well: R may include what other calls under way have made the pool grow by already,
//! and R + P would count that twice, which near a limit is a denial for nothing.

/// What a pool that has shown no step of its own is expected to grow by, and what every amount is a multiple of.
pub const GRANULE: u64 = 512;
/// Steps above this are not learned: reserving them for every small call would be asked in vain too often.
pub const LARGEST_STEP: u64 = 64 << 20;

/// One pool's account; all zero is an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolAccount {
    reserved: u64,
    pending: u64,
    charged: u64,
    claimed: u64,
    step: u64,
    step_seen: u32,
    turn: u32,
}

/// Proof that a call began: what the account was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    turn: u32,
    reserved: u64,
    is_alone: bool,
}

/// What [`PoolAccount::settle`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// Another settled meanwhile, the reading may be older than what is known: read again.
    Stale,
    /// A is what U says.
    Even,
    /// A fell: U has to fall by as much.
    Less(u64),
    /// A rose beyond what was reserved: U has to rise by as much and [`PoolAccount::own`] be called, or
    /// [`PoolAccount::disown`].
    More(u64),
}

impl PoolAccount {
    /// What the pool reserved when it was last read.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// What stands in U for the pool.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// No call is under way.
    pub fn is_at_rest(&self) -> bool {
        self.pending == 0
    }

    /// What to reserve for a call that asks `bytes`: the pool may grow by a whole number of its steps.
    pub fn to_reserve(&self, bytes: u64) -> u64 {
        bytes
            .checked_next_multiple_of(self.step.max(GRANULE))
            .unwrap_or(u64::MAX)
    }

    /// The pool is known to grow by more than `bytes`, if it grows for them.
    pub fn grows_in_larger_steps(&self, bytes: u64) -> bool {
        self.step_seen > 1 && self.to_reserve(bytes) > bytes
    }

    /// A call begins for which `reserved` bytes (possibly none) were added to U.
    pub fn begin(&mut self, reserved: u64) -> Ticket {
        let ticket = Ticket {
            turn: self.turn,
            reserved: self.reserved,
            is_alone: self.pending == 0,
        };
        self.pending = self.pending.saturating_add(reserved);
        self.charged = self.charged.saturating_add(reserved);
        ticket
    }

    /// Whoever reads the pool without having asked anything of it: nothing is reserved.
    pub fn look(&self) -> Ticket {
        Ticket {
            turn: self.turn,
            reserved: self.reserved,
            is_alone: false,
        }
    }

    /// Takes over what was read after the call (`reserved` is what it began with, `asked` what the program wanted, both
    /// 0 for [`look`](Self::look)). With `may_grow`, A rises to a reading above it. A stale ticket is renewed.
    pub fn settle(&mut self, ticket: &mut Ticket, reserved: u64, asked: u64, reading: u64, may_grow: bool) -> Settled {
        if ticket.turn != self.turn {
            *ticket = self.look();
            return Settled::Stale;
        }
        if ticket.is_alone && self.pending == reserved {
            self.learn(reading.saturating_sub(ticket.reserved), asked);
        }
        self.turn = self.turn.wrapping_add(1);
        self.reserved = reading;
        self.pending = self.pending.saturating_sub(reserved);
        let most = if may_grow {
            self.charged.max(reading)
        } else {
            self.charged
        };
        // What is claimed may not be in U yet, so it cannot be taken off it.
        let charged = reading.saturating_add(self.pending).min(most).max(self.claimed);
        let before = core::mem::replace(&mut self.charged, charged);
        ticket.turn = self.turn;
        if charged < before {
            Settled::Less(before - charged)
        } else if charged > before {
            self.claimed = self.claimed.saturating_add(charged - before);
            Settled::More(charged - before)
        } else {
            Settled::Even
        }
    }

    /// The call ends, and is known not to have made the pool grow: the last reading stands for one of its own. Answers
    /// by how much U has to fall. Readings of others that began before are old: the driver may have let go of that
    /// memory and taken it again.
    pub fn end_unused(&mut self, reserved: u64) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        self.pending = self.pending.saturating_sub(reserved);
        let charged = self
            .reserved
            .saturating_add(self.pending)
            .min(self.charged)
            .max(self.claimed);
        core::mem::replace(&mut self.charged, charged).saturating_sub(charged)
    }

    /// U was raised by what [`Settled::More`] said. `false`: others have settled since, so that A may be more than it
    /// has to be; read and settle once more, with nothing reserved and nothing asked.
    #[must_use]
    pub fn own(&mut self, ticket: &mut Ticket, bytes: u64) -> bool {
        self.claimed = self.claimed.saturating_sub(bytes);
        let is_settled = ticket.turn == self.turn;
        *ticket = self.look();
        is_settled
    }

    /// The call ends without a reading: what it reserved stays charged until somebody reads.
    pub fn give_up(&mut self, reserved: u64) {
        self.turn = self.turn.wrapping_add(1);
        self.pending = self.pending.saturating_sub(reserved);
    }

    /// U could not be raised by what [`Settled::More`] said.
    pub fn disown(&mut self, bytes: u64) {
        self.turn = self.turn.wrapping_add(1);
        self.claimed = self.claimed.saturating_sub(bytes);
        self.charged = self.charged.saturating_sub(bytes);
    }

    /// Sets A to at most `bytes`, for a pool that can be read no more; answers by how much U has to fall.
    pub fn close(&mut self, bytes: u64) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        let kept = self.charged.min(bytes).max(self.claimed);
        core::mem::replace(&mut self.charged, kept) - kept
    }

    fn learn(&mut self, growth: u64, asked: u64) {
        if growth <= asked || asked == 0 {
            return;
        }
        if growth == self.to_reserve(asked) {
            self.step_seen = self.step_seen.saturating_add(1);
        } else {
            self.step = growth.min(LARGEST_STEP);
            self.step_seen = 1;
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Hard caps: a (budget, period) server for each job and device.
//!
//! At each end of a period the budget becomes min(Q, budget + Q) with Q = cap × period: what was used beyond it is a
//! debt that the next periods pay, what was not used is not saved. A job whose budget is used up waits for the next
//! period that leaves it one. A charge may turn out to have been too much only after it closed the gate; what is given
//! back then was not left unused by the job, so the next period has it too: budget + Q, but 2 Q at most. A job that
//! always wants therefore gets exactly its cap in the long run, and in no period more than Q plus that and what was in
//! flight when its gate closed.

const PPM: u64 = 1_000_000;

/// The budget of one job on one device; all its clients draw on it.
#[derive(Clone, Debug)]
pub(crate) struct CapBudget {
    cap_ppm: u64,
    period_ns: u64,
    budget: i64,
    /// What was given back since the period began, of what had been charged too much.
    returned: i64,
    next_ns: u64,
    is_exhausted: bool,
}

impl CapBudget {
    /// A full budget from now on. A cap of 0 still leaves one part per million: nothing waits for ever.
    pub fn new(cap_ppm: u32, period_ns: u64, now: u64) -> Self {
        let mut cap = Self {
            cap_ppm: u64::from(cap_ppm).clamp(1, PPM),
            period_ns: period_ns.max(1),
            budget: 0,
            returned: 0,
            next_ns: now + period_ns.max(1),
            is_exhausted: false,
        };
        cap.budget = cap.full();
        cap
    }

    /// Another cap from now on. What is left keeps its proportion, so that a lower cap does not punish what was allowed
    /// before; a debt stays.
    pub fn change(&mut self, cap_ppm: u32) {
        let before = self.full();
        self.cap_ppm = u64::from(cap_ppm).clamp(1, PPM);
        let full = self.full();
        let scaled = |ns: i64| {
            let scaled = i128::from(ns) * i128::from(full) / i128::from(before.max(1));
            i64::try_from(scaled).unwrap_or(i64::MAX)
        };
        self.returned = scaled(self.returned);
        if self.budget > 0 {
            self.budget = scaled(self.budget);
        }
    }

    /// Fills the budget for every period that has ended.
    pub fn advance(&mut self, now: u64) {
        if now < self.next_ns {
            return;
        }
        let periods = (now - self.next_ns) / self.period_ns + 1;
        self.next_ns += periods * self.period_ns;
        let full = i128::from(self.full());
        // Of the period in which the gate was closed; after that whatever is left is not saved.
        let returned = if self.is_exhausted && periods == 1 {
            i128::from(self.budget).clamp(0, full)
        } else {
            0
        };
        let budget = (i128::from(self.budget) + full * i128::from(periods)).min(full + returned);
        self.budget = i64::try_from(budget).unwrap_or(i64::MIN);
        self.returned = 0;
        self.is_exhausted = self.budget <= 0;
    }

    /// Takes what the job was charged; corrections may be negative.
    pub fn charge(&mut self, ns: i64) {
        self.budget = self.budget.saturating_sub(ns);
        self.returned = self.returned.saturating_add(ns.saturating_neg().max(0));
        // Only the end of a period ends this: a correction must not open the gate for a few microseconds.
        self.is_exhausted |= self.budget <= 0;
    }

    /// Drops a debt; the period is over for the job all the same.
    pub fn forgive(&mut self) {
        self.budget = self.budget.max(0);
    }

    /// Forgets what it owes beyond this.
    pub fn owe_at_most(&mut self, ns: i64) {
        self.budget = self.budget.max(-ns);
    }

    /// Whether the job has to wait for the end of the period.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// What is left; negative: owed.
    pub fn budget_ns(&self) -> i64 {
        self.budget
    }

    /// Whether the budget is at most what this period gives, what the one before was given back, and what was given
    /// back since. (Scaling by another cap rounds.)
    pub fn is_in_range(&self) -> bool {
        self.budget
            <= self
                .full()
                .saturating_mul(2)
                .saturating_add(self.returned)
                .saturating_add(1)
    }

    /// Breaks the bound.
    #[cfg(test)]
    pub fn upset(&mut self) {
        self.budget = self.full().saturating_mul(3);
    }

    /// When the period ends.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The cap.
    pub fn cap_ppm(&self) -> u32 {
        u32::try_from(self.cap_ppm).unwrap_or(u32::MAX)
    }

    fn full(&self) -> i64 {
        let ns = u128::from(self.cap_ppm) * u128::from(self.period_ns) / u128::from(PPM);
        i64::try_from(ns).unwrap_or(i64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests;

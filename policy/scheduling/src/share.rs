// SPDX-License-Identifier: Apache-2.0
//! Shares: earliest eligible virtual deadline first (EEVDF), on charged device time.
//!
//! Terms. *In*: the job wants the device, or owes for what it had; only such jobs count in W = Σ weights. *Lag*: device
//! time that the job is owed (negative: it is ahead), so that for all jobs that are in
//!
//! ```text
//!   lag_i  :=  lag_i + S · w_i / W − s_i      S = Σ s, s_i = what i was charged
//! ```
//!
//! *Request*: the device time that a job asks for at once; *remaining*: what is left of it. With virtual time V and
//! lag_i = w_i (V − v_i) the classical deadline v_i + remaining_i / w_i becomes, measured from V,
//! (remaining_i − lag_i) / w_i: no virtual clock is kept, and a changed weight changes neither lag nor remaining.
//!
//! Invariants: Σ lag over the jobs that are in is 0, to the nanosecond. A job that leaves hands what it was owed to the
//! others and keeps a claim, which it takes back when it comes again: of at most one request if it slept. Both are
//! shared by the weights that the others have without it, so that leaving and coming again changes nothing. A job that
//! is ahead does not leave: it pays by waiting or by sleeping (the caller keeps it in until its lag is not negative).

use std::collections::BTreeMap;

use partage_protocol::units::JobId;

#[derive(Clone, Debug)]
struct Row {
    weight: u64,
    request: i64,
    remaining: i64,
    lag: i64,
    is_in: bool,
}

/// The jobs of one device and what each is owed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eevdf {
    rows: BTreeMap<JobId, Row>,
    /// Lag of jobs that left, until it is shared.
    left_ns: i64,
}

impl Eevdf {
    /// Adds a job that owes nothing and is owed nothing.
    pub fn add(&mut self, job: JobId, request_ns: u64) {
        let request = signed(request_ns);
        self.rows.entry(job).or_insert(Row {
            weight: 1,
            request,
            remaining: request,
            lag: 0,
            is_in: false,
        });
    }

    /// Removes a job; what it was owed or owed is shared by the others at the next [`Eevdf::share_left`].
    pub fn remove(&mut self, job: JobId) {
        self.leave(job);
        self.rows.remove(&job);
    }

    /// Lag and remaining stay as they are.
    pub fn set_weight(&mut self, job: JobId, weight: u64) {
        if let Some(row) = self.rows.get_mut(&job) {
            row.weight = weight.max(1);
        }
    }

    /// Length of the job's requests from the next one on; one that is longer than that is shortened.
    pub fn set_request(&mut self, job: JobId, request_ns: u64) {
        if let Some(row) = self.rows.get_mut(&job) {
            row.request = signed(request_ns);
            row.remaining = row.remaining.min(row.request);
        }
    }

    /// The job wants the device from now on: it takes up its claim at the cost of the others. Who `has_slept` claims no
    /// more than one request: sleeping saves nothing.
    pub fn join(&mut self, job: JobId, has_slept: bool) {
        if self.is_in(job) {
            return;
        }
        self.share_left();
        let Some(row) = self.rows.get_mut(&job) else { return };
        row.is_in = true;
        row.remaining = row.request;
        let claim = if has_slept { row.lag.min(row.request) } else { row.lag };
        row.lag = 0;
        let others = self.spread(-claim, Some(job));
        if let (Some(row), true) = (self.rows.get_mut(&job), others) {
            row.lag = claim;
        }
    }

    /// The job wants nothing any more. What it is owed becomes its claim, and the others' at the next
    /// [`Eevdf::share_left`].
    pub fn leave(&mut self, job: JobId) {
        let Some(row) = self.rows.get_mut(&job) else { return };
        if std::mem::take(&mut row.is_in) {
            self.left_ns = self.left_ns.saturating_add(row.lag);
        }
    }

    /// Shares what jobs left behind among those that are in. Precondition: these have the weights that they have
    /// without the jobs that left.
    pub fn share_left(&mut self) {
        let left = std::mem::take(&mut self.left_ns);
        self.spread(left, None);
    }

    /// Charges what was served since the last time; corrections may be negative. Precondition: a job with a charge is
    /// in.
    pub fn serve(&mut self, charges: &[(JobId, i64)]) {
        let mut sum = 0;
        for &(job, ns) in charges {
            if let Some(row) = self.rows.get_mut(&job) {
                row.remaining = row.remaining.saturating_sub(ns);
                if row.is_in {
                    row.lag = row.lag.saturating_sub(ns);
                    sum += ns;
                }
            }
        }
        self.spread(sum, None);
    }

    /// Takes from the job what it is owed beyond `limit` and hands it to the others: for jobs that were kept from the
    /// device by something else than their neighbours.
    pub fn limit_claim(&mut self, job: JobId, limit_ns: u64) {
        let Some(row) = self.rows.get_mut(&job) else { return };
        let excess = row.lag.saturating_sub(signed(limit_ns));
        if !row.is_in || excess <= 0 {
            return;
        }
        row.lag -= excess;
        if !self.spread(excess, Some(job))
            && let Some(row) = self.rows.get_mut(&job)
        {
            row.lag = 0;
        }
    }

    /// By how much the jobs that are in, and what was left behind, miss a sum of 0. Nobody is owed anything where
    /// nobody is in.
    pub fn imbalance_ns(&self) -> i64 {
        let mut lags = self.rows.values().filter(|row| row.is_in).map(|row| row.lag).peekable();
        match lags.peek() {
            Some(_) => lags.fold(self.left_ns, i64::saturating_add),
            None => 0,
        }
    }

    /// Who has an account.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.rows.keys().copied()
    }

    /// Whether the job counts in W.
    pub fn is_in(&self, job: JobId) -> bool {
        self.rows.get(&job).is_some_and(|row| row.is_in)
    }

    /// What the job is owed; of one that is out, its claim.
    pub fn lag(&self, job: JobId) -> i64 {
        self.rows.get(&job).map_or(0, |row| row.lag)
    }

    /// Whether the job has had what it asked for.
    pub fn is_served(&self, job: JobId) -> bool {
        self.rows.get(&job).is_none_or(|row| row.remaining <= 0)
    }

    /// The job asks again. What it had beyond its last request is in its lag already.
    pub fn renew(&mut self, job: JobId) {
        if let Some(row) = self.rows.get_mut(&job) {
            row.remaining = row.request;
        }
    }

    /// Of the candidates that are owed something or nothing, the one with the earliest virtual deadline; the smaller
    /// key where two are equal. Where all are ahead of their shares (those who are owed do not want), the same among
    /// all.
    pub fn best(&self, candidates: &[JobId]) -> Option<JobId> {
        let pick = |must_be_eligible: bool| {
            let mut best: Option<(JobId, &Row)> = None;
            for &job in candidates {
                let Some(row) = self.rows.get(&job) else { continue };
                if must_be_eligible && row.lag < 0 {
                    continue;
                }
                if best.is_none_or(|(_, other)| is_earlier(row, other)) {
                    best = Some((job, row));
                }
            }
            best.map(|(job, _)| job)
        };
        pick(true).or_else(|| pick(false))
    }

    /// Shares `amount` among the jobs that are in, by weight, to the nanosecond. False: there is none.
    fn spread(&mut self, amount: i64, except: Option<JobId>) -> bool {
        let receives = |job: &JobId, row: &Row| row.is_in && Some(*job) != except;
        let total: i128 = self
            .rows
            .iter()
            .filter(|(job, row)| receives(job, row))
            .map(|(_, row)| i128::from(row.weight))
            .sum();
        if total == 0 {
            return false;
        }
        // The parts of a running sum add up to the whole, whatever is lost in each division: as much of −n as of n.
        let (mut before, mut given) = (0i128, 0i64);
        for (job, row) in &mut self.rows {
            if receives(job, row) {
                before += i128::from(row.weight);
                let until = i64::try_from(i128::from(amount) * before / total).unwrap_or(amount);
                row.lag = row.lag.saturating_add(until - given);
                given = until;
            }
        }
        true
    }
}

#[cfg(test)]
impl Eevdf {
    /// Breaks the first invariant.
    pub fn upset(&mut self, job: JobId, ns: i64) {
        let row = self.rows.get_mut(&job).expect("a job of the device");
        (row.is_in, row.lag) = (true, ns);
    }
}

/// (remaining − lag) / weight, compared without division.
fn is_earlier(a: &Row, b: &Row) -> bool {
    // Who has been served asks for a whole request next.
    let asked = |row: &Row| if row.remaining > 0 { row.remaining } else { row.request };
    let left = i128::from(asked(a) - a.lag) * i128::from(b.weight);
    let right = i128::from(asked(b) - b.lag) * i128::from(a.weight);
    left < right
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

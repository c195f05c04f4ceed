// SPDX-License-Identifier: Apache-2.0
//! Caps alone: what a job under a cap can have, whatever it does.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const PERIOD: u64 = 100 * MS;

/// A job that always wants runs in units of this length whenever its gate is open; what it had in each period.
fn saturate(server: &mut CapBudget, unit: u64, periods: u64, from: u64) -> Vec<u64> {
    let mut had = vec![0; periods as usize];
    let mut now = from;
    while now < from + periods * PERIOD {
        server.advance(now);
        if server.is_exhausted() {
            now = server.next_ns();
        } else {
            had[((now - from) / PERIOD) as usize] += unit;
            server.charge(unit as i64);
            now += unit;
        }
    }
    had
}

#[test]
fn no_period_exceeds_the_budget_by_more_than_one_unit_and_debts_are_paid() {
    for percent in 1..=100u32 {
        for unit in [10_000, 300_000, 5 * MS, 30 * MS, 250 * MS] {
            let mut server = CapBudget::new(percent * 10_000, PERIOD, 0);
            let had = saturate(&mut server, unit, 200, 0);
            let budget = u64::from(percent) * MS;
            assert!(
                had.iter().all(|had| *had <= budget + unit),
                "{percent} % in units of {unit}: {had:?}"
            );
            // Over any number of periods from the beginning: the debt never grows beyond one unit.
            let mut sum = 0;
            for (i, had) in had.iter().enumerate() {
                sum += had;
                assert!(sum <= budget * (i as u64 + 1) + unit);
            }
            // Nothing is lost either, but for the unit that did not fit before the end.
            assert!(
                sum + unit >= budget * 200 || percent == 100,
                "{percent} % in units of {unit}: {sum}"
            );
        }
    }
}

#[test]
fn what_is_not_used_is_not_saved() {
    let mut server = CapBudget::new(250_000, PERIOD, 0);
    server.advance(50 * PERIOD);
    assert_eq!(server.budget_ns(), 25 * MS as i64);
}

#[test]
fn a_changed_cap_keeps_the_proportion_of_what_is_left_and_the_debt() {
    let mut server = CapBudget::new(1_000_000, PERIOD, 0);
    server.charge(50 * MS as i64);
    server.change(200_000);
    assert_eq!(server.budget_ns(), 10 * MS as i64);
    server.charge(15 * MS as i64);
    server.change(800_000);
    assert_eq!((server.budget_ns(), server.is_exhausted()), (-5 * MS as i64, true));
    server.advance(PERIOD);
    assert_eq!((server.budget_ns(), server.is_exhausted()), (75 * MS as i64, false));
}

#[test]
fn a_correction_does_not_reopen_a_gate_within_the_period() {
    let mut server = CapBudget::new(100_000, PERIOD, 0);
    server.charge(10 * MS as i64);
    server.charge(-(MS as i64));
    assert!(server.is_exhausted());
    server.advance(PERIOD);
    assert!(!server.is_exhausted());
}

/// Samples take too much for a job's as long as its work is under way; what it had is known a little later, when its
/// gate is closed.
#[test]
fn what_was_charged_too_much_before_the_gate_closed_is_not_lost() {
    for percent in [10u32, 30, 75] {
        let mut server = CapBudget::new(percent * 10_000, PERIOD, 0);
        let (unit, extra) = (MS / 5, 3 * MS / 2);
        let (mut had, mut now) = (0, 0);
        while now < 200 * PERIOD {
            server.advance(now);
            if server.is_exhausted() {
                now = server.next_ns();
                continue;
            }
            had += unit;
            let is_last = server.budget_ns() <= (unit + extra) as i64;
            server.charge(if is_last { unit + extra } else { unit } as i64);
            if is_last {
                server.charge(-(extra as i64));
            }
            now += unit;
        }
        let budget = u64::from(percent) * MS * 200;
        assert!(had.abs_diff(budget) <= 2 * extra, "{percent} %: {had} of {budget}");
    }
}

#[test]
fn what_is_given_back_serves_one_period_and_no_more_than_a_budget() {
    let budget = 10 * MS as i64;
    let mut server = CapBudget::new(100_000, PERIOD, 0);
    server.charge(budget);
    server.charge(-3 * MS as i64);
    server.advance(PERIOD);
    assert_eq!(server.budget_ns(), budget + 3 * MS as i64);
    server.advance(2 * PERIOD);
    assert_eq!(server.budget_ns(), budget, "it was not used");
    server.charge(budget);
    server.charge(-5 * budget);
    server.advance(3 * PERIOD);
    assert_eq!(server.budget_ns(), 2 * budget);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3 * ProptestConfig::default().cases))]

    #[test]
    fn caps_that_change_are_each_kept_from_then_on(
        caps in prop::collection::vec(1..=100u32, 1..6),
        unit in 1_000..10_000_000u64,
    ) {
        let mut server = CapBudget::new(caps[0] * 10_000, PERIOD, 0);
        let mut from = 0;
        for cap in caps {
            server.advance(from);
            server.change(cap * 10_000);
            let had = saturate(&mut server, unit, 12, from);
            from += 12 * PERIOD;
            let budget = u64::from(cap) * MS;
            prop_assert!(had.iter().all(|had| *had <= budget + unit), "{} {:?}", cap, had);
            // Settled after two periods: what is missing is a debt of one unit, and a unit that began in the next.
            let settled: u64 = had[2..].iter().sum();
            prop_assert!(settled.abs_diff(10 * budget) <= 2 * unit + budget / 100, "{} {:?}", cap, had);
        }
    }
}

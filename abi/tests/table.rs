// SPDX-License-Identifier: Apache-2.0
//! The two tables agree with themselves: unique, complete, one treatment for all ABI versions of a function.

use std::collections::{HashMap, HashSet};

use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::{HOOKED, NEVER_TOUCHED, ROWS, Row, Symbol, Treatment, nvml, symbol_index};

/// The name without its stream flavour.
fn without_flavour(name: &str) -> &str {
    name.strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name)
}

/// The name without flavour and version.
fn family(name: &str) -> &str {
    let name = without_flavour(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

fn row(name: &str) -> &'static Row {
    &ROWS[symbol_index(name.as_bytes()).unwrap_or_else(|| panic!("{name} has no row"))]
}

#[test]
fn every_symbol_has_one_row() {
    for rows in [ROWS, nvml::ROWS] {
        let mut seen = HashSet::new();
        for row in rows {
            assert!(seen.insert(row.name()), "{} stands twice", row.name());
            assert!(!row.chapter.is_empty(), "{}", row.name());
        }
    }
    assert!(
        ROWS.iter()
            .all(|row| row.name().starts_with("cu") && !row.name().starts_with(NEVER_TOUCHED))
    );
    assert!(nvml::ROWS.iter().all(|row| row.name().starts_with("nvml")));
}

#[test]
fn table_has_the_size_that_the_documentation_names() {
    assert_eq!((ROWS.len(), nvml::ROWS.len()), (723, 436));
}

#[test]
fn symbols_index_their_rows() {
    for (i, symbol) in Symbol::ALL.iter().enumerate() {
        assert_eq!(*symbol as usize, i);
        assert_eq!(format!("{symbol:?}"), ROWS[i].name());
        assert_eq!(symbol_index(ROWS[i].name().as_bytes()), Some(i));
    }
    assert_eq!(symbol_index(b"cuMemAlloc_v9"), None);
    assert_eq!(symbol_index(b""), None);
    assert_eq!(
        nvml::symbol_index(b"nvmlInit_v2"),
        Some(nvml::Symbol::nvmlInit_v2 as usize)
    );
}

#[test]
fn hooked_rows_are_those_with_a_treatment_and_know_their_slot() {
    const SLOT: usize = Symbol::cuMemAlloc_v2.slot().unwrap();
    assert_eq!(HOOKED[SLOT], Symbol::cuMemAlloc_v2);
    let mut next = 0;
    for symbol in Symbol::ALL {
        if symbol.row().treatment == Treatment::Pass {
            assert_eq!(symbol.slot(), None, "{symbol:?}");
        } else {
            assert_eq!(symbol.slot(), Some(next), "{symbol:?}");
            assert_eq!(HOOKED[next], *symbol);
            next += 1;
        }
    }
    assert_eq!(next, HOOKED.len());
    assert_eq!(
        nvml::HOOKED.len(),
        nvml::ROWS.iter().filter(|row| row.treatment.is_hooked()).count()
    );
}

#[test]
fn all_versions_and_flavours_of_a_function_have_one_treatment() {
    for rows in [ROWS, nvml::ROWS] {
        let mut first: HashMap<&str, &Row> = HashMap::new();
        for row in rows {
            let other = first.entry(family(row.name())).or_insert(row);
            assert_eq!(other.treatment, row.treatment, "{} and {}", other.name(), row.name());
        }
    }
}

#[test]
fn per_thread_flavours_take_what_their_function_takes() {
    let mut flavours = 0;
    for flavour in ROWS.iter().filter(|row| without_flavour(row.name()) != row.name()) {
        let plain = row(without_flavour(flavour.name()));
        assert_eq!(plain.arguments, flavour.arguments, "{}", flavour.name());
        flavours += 1;
    }
    assert!(flavours > 100, "only {flavours} per-thread rows found");
}

#[test]
fn operand_of_a_treatment_names_an_argument_of_the_row() {
    for row in ROWS {
        let takes_operand = matches!(
            row.treatment,
            Treatment::Charge | Treatment::Refund | Treatment::Gate | Treatment::Settle
        );
        assert_eq!(takes_operand, !row.operand.is_empty(), "{}", row.name());
        if takes_operand {
            let mut words = row.operand.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            assert!(
                // Work without a stream of its own is gated as that of the default stream.
                row.operand.contains("CuStream")
                    || words.any(|word| row.arguments.iter().any(|(name, _)| *name == word)),
                "{}: {} names no argument",
                row.name(),
                row.operand
            );
        }
    }
}

#[test]
fn charged_functions_give_the_address_in_their_first_argument() {
    let charged: Vec<_> = ROWS.iter().filter(|row| row.treatment == Treatment::Charge).collect();
    assert!(!charged.is_empty());
    for row in charged {
        let (_, kind) = row.arguments[0];
        // The compiler prints the star with or without a space behind it.
        let kind = kind.replace("* ", "*");
        assert!(
            ["*mut CuDevicePtr", "*mut CuDevicePtrV1"].contains(&&*kind),
            "{} takes {kind}",
            row.name()
        );
    }
}

#[test]
fn every_row_is_reached_by_exactly_one_entry_point() {
    let mut reached = HashSet::new();
    for entry in PROC_ADDRESS {
        assert!(reached.insert(entry.symbol), "{:?} twice", entry.symbol);
        let name = entry.symbol.row().name();
        assert_eq!(entry.per_thread, without_flavour(name) != name, "{name}");
        assert_eq!(entry.name, family(name));
    }
    for symbol in Symbol::ALL {
        assert!(reached.contains(symbol), "{symbol:?} is not reached");
    }
}

/// Rows as their consumers see them: the documented grammar, matched by a macro outside the crate.
#[test]
fn consumers_get_every_row_with_its_signature() {
    use partage_abi::types::*;
    let mut symbols = Vec::new();
    macro_rules! collect {
        ($(
            [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?;
        )*) => { $(
            let size = [$(size_of::<$type>()),*].iter().sum::<usize>();
            symbols.push((stringify!($word), stringify!($symbol), size));
        )* };
    }
    partage_abi::driver_table! { collect }
    assert_eq!(symbols.len(), ROWS.len());
    for ((word, symbol, size), row) in symbols.into_iter().zip(ROWS) {
        assert_eq!((word, symbol), (row.treatment.word(), row.name()));
        assert_eq!(size == 0, row.arity() == 0, "{symbol}");
    }
}

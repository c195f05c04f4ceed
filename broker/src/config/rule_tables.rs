// SPDX-License-Identifier: Apache-2.0
//! Classes and rules as written.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{I64Deserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

/// `[class.NAME]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    pub(super) mem: Option<Spanned<String>>,
    pub(super) mem_request: Option<Spanned<String>>,
    pub(super) process_mem: Option<Spanned<String>>,
    pub(super) compute: Option<Spanned<String>>,
    pub(super) compute_max: Option<Spanned<String>>,
    pub(super) weight: Option<Spanned<i64>>,
    pub(super) priority: Option<Spanned<String>>,
    pub(super) time_limit: Option<Spanned<String>>,
}

/// `[[rule]]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    pub(super) name: Option<Spanned<String>>,
    #[serde(default, rename = "match")]
    pub(super) matching: MatchTable,
    pub(super) class: Option<Spanned<String>>,
    pub(super) classes: Option<Spanned<Many<String>>>,
    pub(super) gpu: Option<Spanned<Many<GpuWord>>>,
    #[serde(default)]
    pub(super) max: MaxTable,
    #[serde(default)]
    pub(super) each_user: TotalTable,
    #[serde(default)]
    pub(super) together: TotalTable,
    pub(super) per: Option<Spanned<String>>,
    pub(super) strict: Option<bool>,
    pub(super) without_broker: Option<Spanned<String>>,
}

/// `match = { … }`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchTable {
    pub(super) user: Option<Spanned<Many<String>>>,
    pub(super) group: Option<Spanned<Many<String>>>,
    pub(super) cgroup: Option<Spanned<Many<String>>>,
    pub(super) program: Option<Spanned<Many<String>>>,
    pub(super) container: Option<Spanned<Many<String>>>,
    pub(super) label: Option<Spanned<Many<String>>>,
}

/// `max = { … }`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MaxTable {
    pub(super) mem: Option<Spanned<String>>,
    pub(super) process_mem: Option<Spanned<String>>,
    pub(super) compute: Option<Spanned<String>>,
    pub(super) compute_max: Option<Spanned<String>>,
    pub(super) weight: Option<Spanned<i64>>,
    pub(super) priority: Option<Spanned<String>>,
    pub(super) gpus: Option<Spanned<i64>>,
    pub(super) time_limit: Option<Spanned<String>>,
}

/// `each_user = { … }`, `together = { … }`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TotalTable {
    pub(super) mem: Option<Spanned<String>>,
    pub(super) compute: Option<Spanned<String>>,
    pub(super) gpus: Option<Spanned<i64>>,
    pub(super) jobs: Option<Spanned<i64>>,
}

/// One value, or a list of them.
pub(super) struct Many<T>(pub(super) Vec<T>);

/// A GPU's index, or the beginning of its UUID.
pub(super) struct GpuWord(pub(super) String);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(OneOrMany(PhantomData))
    }
}

struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
    type Value = Many<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string or a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Many<T>, E> {
        T::deserialize(StrDeserializer::new(text)).map(|one| Many(vec![one]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Many<T>, E> {
        T::deserialize(I64Deserializer::new(number)).map(|one| Many(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Many<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Many)
    }
}

impl<'de> Deserialize<'de> for GpuWord {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(GpuVisitor)
    }
}

struct GpuVisitor;

impl Visitor<'_> for GpuVisitor {
    type Value = GpuWord;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a GPU's index or UUID")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GpuWord, E> {
        Ok(GpuWord(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<GpuWord, E> {
        Ok(GpuWord(number.to_string()))
    }
}

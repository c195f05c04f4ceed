// SPDX-License-Identifier: Apache-2.0
//! What other tools' variables say of device time: a cap and a class (the variables: [`partage_wire::aliases`]).
//!
//! | variable | value | means |
//! |---|---|---|
//! | `CUDA_DEVICE_SM_LIMIT` | whole percent, 0 to 100 | cap; 0, which its writers set for none, says nothing |
//! | `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` | percent above 0, decimals allowed | cap, where the one above says nothing |
//! | `CUDA_TASK_PRIORITY` | whole number | class: 0 is high, 1 (what its writers assume) normal, more is low |
//!
//! An empty variable is an unset one. A value that cannot be read is an error, never "no cap".

pub use partage_wire::aliases::TimeVariable;

use crate::aliases::{AliasError, shown};
use crate::terms::Class;
use crate::units::Share;

/// A value and the text that it was read from: `CUDA_DEVICE_SM_LIMIT=50`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told<T> {
    /// What it means.
    pub value: T,
    /// The variable and its value.
    pub text: String,
}

/// What the variables ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeAsked {
    /// A cap; the whole where one is named that caps nothing.
    pub cap: Option<Told<Share>>,
    /// A class.
    pub class: Option<Told<Class>>,
}

/// The terms that those of `variables` that are on ask for.
///
/// # Errors
/// [`AliasError`] for the first variable that cannot be read.
pub fn asked(variables: &[(String, String)], is_on: impl Fn(TimeVariable) -> bool) -> Result<TimeAsked, AliasError> {
    let value_of = |variable: TimeVariable| {
        let is_it = |name: &String| TimeVariable::of(name.as_bytes()) == Some(variable);
        let (name, value) = variables
            .iter()
            .find(|(name, value)| is_it(name) && !value.trim_ascii().is_empty())?;
        is_on(variable).then(|| (value.trim_ascii(), shown(name, value.trim_ascii())))
    };
    let mut asked = TimeAsked::default();
    for variable in TimeVariable::ALL {
        let Some((value, text)) = value_of(variable) else {
            continue;
        };
        let wrong = |why: &str| AliasError {
            text: text.clone(),
            why: why.to_owned(),
        };
        match variable {
            TimeVariable::SmLimit => match whole(value) {
                Some(0) => {}
                Some(percent @ 1..=100) => {
                    let value = Share::new(percent * 10_000).ok_or_else(|| wrong(PERCENT))?;
                    asked.cap.get_or_insert(Told { value, text });
                }
                _ => return Err(wrong(PERCENT)),
            },
            TimeVariable::ActiveThreads => {
                let value = crate::size::parse_share(&format!("{value}%")).map_err(|_| wrong(PART))?;
                asked.cap.get_or_insert(Told { value, text });
            }
            TimeVariable::TaskPriority => {
                let value = match whole(value).ok_or_else(|| wrong("is no whole number"))? {
                    0 => Class::High,
                    1 => Class::Normal,
                    _ => Class::Low,
                };
                asked.class = Some(Told { value, text });
            }
        }
    }
    Ok(asked)
}

const PERCENT: &str = "is no whole percentage from 0 to 100";
const PART: &str = "is no percentage above 0 and up to 100";

/// A number of digits alone.
fn whole(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

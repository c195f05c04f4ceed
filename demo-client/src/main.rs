// SPDX-License-Identifier: Apache-2.0
//! The program that `partage demo` runs under limits: an ordinary client of the CUDA driver, which knows nothing of
//! Partage and does what it is told on standard input, a line each. Each line has one answer on standard output:
//!
//! | line | does | answer |
//! |---|---|---|
//! | (start) | makes a context | `ready MODEL` or `failed REASON` |
//! | `can-suspend` | looks for the driver's checkpoint functions | `yes` or `no` |
//! | `total` | asks how large the GPU is | `total BYTES` |
//! | `take MIB` | allocates a block | `taken` or `error CODE` |
//! | `drop` | frees the block taken last | `dropped` |
//! | `fill SEED` | lets a kernel write numbers into the first block | `filled` |
//! | `check SEED` | compares them with what they must be | `same` or `differs COUNT` |
//!
//! It ends with its input.

mod driver;

use std::ffi::CStr;
use std::io::{BufRead, Write};
use std::process::ExitCode;

use driver::{Driver, Kernel, OUT_OF_MEMORY, Refusal};

const PTX: &str = concat!(include_str!("fill.ptx"), "\0");
/// Numbers that the kernel writes: 4 MiB of them.
const COUNT: u32 = 1 << 20;
/// Any odd number serves; fill.ptx has the same.
const FACTOR: u32 = 2_654_435_761;

fn main() -> ExitCode {
    let mut client = match Client::open() {
        Ok(client) => client,
        Err(refusal) => {
            say(&format!("failed {refusal}"));
            return ExitCode::FAILURE;
        }
    };
    say(&format!("ready {}", client.driver.name));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return ExitCode::FAILURE };
        match client.act(&line) {
            Ok(answer) => say(&answer),
            Err(refusal) => {
                say(&format!("failed {refusal}"));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Who asked may be gone; then the input ends, too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Client {
    driver: Driver,
    kernel: Kernel,
    blocks: Vec<u64>,
}

impl Client {
    fn open() -> Result<Self, Refusal> {
        let driver = Driver::open()?;
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).expect("the text has one zero, at its end");
        let kernel = driver.kernel(ptx, c"fill")?;
        Ok(Self {
            driver,
            kernel,
            blocks: Vec::new(),
        })
    }

    fn act(&mut self, line: &str) -> Result<String, Refusal> {
        let (verb, number) = line.split_once(' ').unwrap_or((line, "0"));
        let unclear = || Refusal::Missing(format!("nothing is known of {line:?}"));
        let number: u32 = number.parse().map_err(|_| unclear())?;
        match verb {
            "can-suspend" => Ok(if self.driver.can_suspend() { "yes" } else { "no" }.to_owned()),
            "total" => self.driver.total().map(|bytes| format!("total {bytes}")),
            "take" => match self.driver.take((number as usize) << 20) {
                Ok(address) => {
                    self.blocks.push(address);
                    Ok("taken".to_owned())
                }
                Err(Refusal::Code(_, OUT_OF_MEMORY)) => Ok(format!("error {OUT_OF_MEMORY}")),
                Err(refusal) => Err(refusal),
            },
            "drop" => {
                let address = self.blocks.pop().ok_or_else(unclear)?;
                self.driver.drop(address).map(|()| "dropped".to_owned())
            }
            "fill" => {
                let first = *self.blocks.first().ok_or_else(unclear)?;
                self.driver.fill(&self.kernel, first, COUNT, number)?;
                Ok("filled".to_owned())
            }
            "check" => {
                let first = *self.blocks.first().ok_or_else(unclear)?;
                Ok(match wrong(&self.driver.read(first, COUNT)?, number) {
                    0 => "same".to_owned(),
                    count => format!("differs {count}"),
                })
            }
            _ => Err(unclear()),
        }
    }
}

/// How many of these numbers `fill` with this seed would not have written.
fn wrong(numbers: &[u32], seed: u32) -> usize {
    let expected = (0..).map(|i: u32| i.wrapping_mul(FACTOR).wrapping_add(seed));
    numbers.iter().zip(expected).filter(|(is, must)| **is != *must).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_the_kernel_did_not_write_are_counted() {
        let mut numbers: Vec<u32> = (0..8_u32).map(|i| i.wrapping_mul(FACTOR).wrapping_add(7)).collect();
        assert_eq!((wrong(&numbers, 7), wrong(&numbers, 8)), (0, 8));
        numbers[3] = 0;
        assert_eq!(wrong(&numbers, 7), 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the demo shows, in order. Each number that it prints is one that it has checked.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use partage_protocol::admin::{JobDeviceView, JobView, Request};
use partage_protocol::size::format_bytes;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::launch::installed;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::{Report, nanoseconds, write_out};

use super::ending;
use super::program::{Machine, Program, partage};

const FIRST: &str = "demo-first";
const SECOND: &str = "demo-second";
const MIB: u64 = 1 << 20;
/// What each limit is; beside what a program takes, a context of up to half a gibibyte has room.
const FIRST_LIMIT: u64 = 2048 * MIB;
const SECOND_LIMIT: u64 = 1024 * MIB;
const RAISED_LIMIT: u64 = 3072 * MIB;
/// What each program takes at its start, and its kernel's numbers.
const START_MIB: u64 = 256;
const FIRST_SEED: u32 = 11;
const SECOND_SEED: u32 = 22;
/// What the first program takes, and is denied the second time.
const STEP_MIB: u64 = 1024;
/// Of `ps`: without the command's long path.
const COLUMNS: &str = "job,name,state,gpu,used,limit";
/// How long the broker may take to know what the driver holds for a program.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs all steps.
///
/// # Errors
/// Something does not start, or a number is wrong.
pub fn show(machine: &Machine, is_simulated: bool, place: &Place, report: &Report) -> Outcome<u8> {
    let start = Instant::now();
    let mut demo = Demo {
        place,
        report,
        checks: Vec::new(),
    };
    let what = match is_simulated {
        true => format!("a simulated {}", machine.model),
        false => format!("this machine's {}", machine.model),
    };
    demo.say(&format!("Partage demo, on {what}"));
    let (mut first, mut second) = demo.two_programs()?;
    demo.out_of_memory(&mut first)?;
    demo.new_limit(&mut first)?;
    match machine.can_suspend {
        true => demo.suspend(&mut first, &mut second)?,
        false => demo.say("\n4. Suspend and resume: left out. They need driver 570 or later."),
    }
    drop((first, second));
    let took = start.elapsed();
    demo.say(&format!(
        "\nAll {} checked numbers are right. It took {:.1} s.",
        demo.checks.len(),
        took.as_secs_f64()
    ));
    if report.is_json {
        let body = json!({
            "model": machine.model,
            "is_simulated": is_simulated,
            "can_suspend": machine.can_suspend,
            "checks": demo.checks,
            "duration_ns": nanoseconds(took),
        });
        report.document("demo", body);
    }
    Ok(0)
}

struct Demo<'a> {
    place: &'a Place,
    report: &'a Report,
    /// A sentence for each number that was right.
    checks: Vec<String>,
}

impl Demo<'_> {
    fn two_programs(&mut self) -> Outcome<(Program, Program)> {
        self.say("\n1. Two programs share the GPU, each under a memory limit.");
        let mut first = self.start(FIRST, FIRST_LIMIT, None)?;
        // Both on one GPU, however many there are.
        let gpu = self.job(FIRST)?.0.devices.first().map(|device| device.uuid.clone());
        let mut second = self.start(SECOND, SECOND_LIMIT, gpu.as_deref())?;
        for (name, program, seed) in [(FIRST, &mut first, FIRST_SEED), (SECOND, &mut second, SECOND_SEED)] {
            self.must_answer(name, program, &format!("take {START_MIB}"), "taken")?;
            self.computes(name, program, seed)?;
        }
        self.sees(FIRST, &mut first, FIRST_LIMIT)?;
        self.sees(SECOND, &mut second, SECOND_LIMIT)?;
        self.holds(FIRST, START_MIB, FIRST_LIMIT)?;
        self.holds(SECOND, START_MIB, SECOND_LIMIT)?;
        self.run(&["ps", "-o", COLUMNS])?;
        self.say(&format!(
            "   Each took {}; the rest of USED is its CUDA context. Each sees its limit as the\n   size of the GPU, \
             and its kernel computed the right numbers.",
            mib(START_MIB)
        ));
        Ok((first, second))
    }

    fn out_of_memory(&mut self, first: &mut Program) -> Outcome<()> {
        self.say("\n2. A program asks for more than its limit.");
        self.must_answer(FIRST, first, &format!("take {STEP_MIB}"), "taken")?;
        self.must_answer(FIRST, first, &format!("take {STEP_MIB}"), "error 2")?;
        let denied = self.job(FIRST)?.1.denied.limit;
        self.check(denied == 1, || {
            format!("{FIRST} was denied {denied} times by its limit, not once")
        })?;
        self.must_answer(FIRST, first, "drop", "dropped")?;
        self.must_answer(FIRST, first, &format!("take {STEP_MIB}"), "taken")?;
        self.computes(FIRST, first, FIRST_SEED)?;
        self.holds(FIRST, START_MIB + STEP_MIB, FIRST_LIMIT)?;
        self.say(&format!(
            "   {FIRST} takes {step} more, and then asks for another {step}: CUDA error 2, out of\n   memory, as on a \
             smaller GPU. It frees {step}, tries again, gets it, and goes on.",
            step = mib(STEP_MIB)
        ));
        Ok(())
    }

    fn new_limit(&mut self, first: &mut Program) -> Outcome<()> {
        self.say("\n3. A limit changes while its program runs.");
        self.run(&["set", FIRST, &format!("mem={}", typed(RAISED_LIMIT))])?;
        self.sees(FIRST, first, RAISED_LIMIT)?;
        self.must_answer(FIRST, first, &format!("take {STEP_MIB}"), "taken")?;
        self.holds(FIRST, START_MIB + 2 * STEP_MIB, RAISED_LIMIT)?;
        self.run(&["ps", "-o", COLUMNS])?;
        self.say(&format!(
            "   {FIRST} sees a GPU of {} now, and gets the {} that it was denied.",
            format_bytes(RAISED_LIMIT),
            mib(STEP_MIB)
        ));
        Ok(())
    }

    fn suspend(&mut self, first: &mut Program, second: &mut Program) -> Outcome<()> {
        self.say("\n4. A program leaves the GPU, and comes back.");
        self.run(&["suspend", FIRST])?;
        let (job, device) = self.job(FIRST)?;
        self.check(job.state == "suspended", || {
            format!("{FIRST} is {}, not suspended", job.state)
        })?;
        let used = device.used_bytes;
        self.check(used == 0, || {
            format!("{FIRST} is suspended and uses {used} bytes of the GPU")
        })?;
        self.computes(SECOND, second, SECOND_SEED)?;
        self.run(&["ps", "-o", COLUMNS])?;
        self.run(&["resume", FIRST])?;
        let (job, _) = self.job(FIRST)?;
        self.check(job.state == "running", || {
            format!("{FIRST} is {}, not running", job.state)
        })?;
        self.must_answer(FIRST, first, &format!("check {FIRST_SEED}"), "same")?;
        self.holds(FIRST, START_MIB + 2 * STEP_MIB, RAISED_LIMIT)?;
        self.say(&format!(
            "   While {FIRST} was away its GPU memory was free, and {SECOND} computed on. The\n   content of \
             {FIRST}'s memory is what it was."
        ));
        Ok(())
    }

    // ---- what the steps are made of ----------------------------------------------------------------------------

    fn say(&self, text: &str) {
        if !self.report.is_json {
            let lines = text.split('\n').map(|line| self.report.style.text(line) + "\n");
            write_out(&lines.collect::<String>());
        }
    }

    fn check(&mut self, is_right: bool, wrong: impl FnOnce() -> String) -> Outcome<()> {
        match is_right {
            true => Ok(()),
            false => Err(Failure::failed(format!("the demo found a wrong number: {}", wrong()))),
        }
    }

    /// `partage WORDS` with this demo's broker.
    fn partage(&self, words: &[&str]) -> Outcome<Command> {
        let mut command = Command::new(partage()?);
        command.args(words).env("PARTAGE_SOCKET_DIR", &self.place.dir);
        Ok(command)
    }

    /// Shows a command and runs it.
    fn run(&self, words: &[&str]) -> Outcome<()> {
        ending::goes_on()?;
        self.say(&format!("   $ partage {}", words.join(" ")));
        let mut command = self.partage(words)?;
        if self.report.style.has_color {
            command.arg("--color=always");
        }
        if self.report.is_json {
            command.stdout(Stdio::null());
        }
        let status = command.stdin(Stdio::null()).status();
        let status = status.map_err(|error| Failure::failed(format!("cannot start partage: {error}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::failed(format!(
                "`partage {}` failed ({status})",
                words.join(" ")
            ))),
        }
    }

    fn start(&self, name: &str, limit: u64, gpu: Option<&str>) -> Outcome<Program> {
        let limit = typed(limit);
        let client = installed::find(installed::DEMO_CLIENT)?;
        let words = ["run", "-m", &limit, "--name", name];
        self.say(&format!(
            "   $ partage {} -- {}",
            words.join(" "),
            installed::DEMO_CLIENT
        ));
        let mut command = self.partage(&words)?;
        command.args(["-q", "--on-full", "fail"]);
        command.args(gpu.into_iter().flat_map(|gpu| ["-g", gpu]));
        command.arg("--").arg(client);
        let started = Program::start(name, &mut command).map(|(program, _)| program);
        started.map_err(|failure| failure.hint("on a simulated GPU: partage sim -- partage demo"))
    }

    /// Its answer must be this.
    fn must_answer(&mut self, name: &str, program: &mut Program, line: &str, expected: &str) -> Outcome<()> {
        let answer = program.ask(line)?;
        self.check(answer == expected, || {
            format!("{name}: {line} gave {answer:?}, not {expected:?}")
        })?;
        self.checks.push(format!("{name}: {line}: {answer}"));
        Ok(())
    }

    /// Its kernel must compute the right numbers.
    fn computes(&mut self, name: &str, program: &mut Program, seed: u32) -> Outcome<()> {
        self.must_answer(name, program, &format!("fill {seed}"), "filled")?;
        self.must_answer(name, program, &format!("check {seed}"), "same")
    }

    /// The program must see a GPU of this size.
    fn sees(&mut self, name: &str, program: &mut Program, limit: u64) -> Outcome<()> {
        self.must_answer(name, program, "total", &format!("total {limit}"))
    }

    fn job(&self, name: &str) -> Outcome<(JobView, JobDeviceView)> {
        let target = name.to_owned();
        let job = ask::job(self.place, &Request::Get { target })?;
        let device = job.devices.first().cloned();
        let missing = || Failure::failed(format!("{name} has no GPU"));
        device.ok_or_else(missing).map(|device| (job, device))
    }

    /// The broker's books must say this: what the program took, apart from what the driver holds for it.
    fn holds(&mut self, name: &str, taken: u64, limit: u64) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let device = self.job(name)?.1;
            let own = device.used_bytes.saturating_sub(device.overhead_bytes);
            // What the driver holds is measured afterwards.
            let is_settled = device.overhead_bytes > 0;
            if !is_settled && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            let found = device.limit_bytes;
            self.check(found == Some(limit), || {
                format!("the limit of {name} is {found:?}, not {limit} bytes")
            })?;
            self.check(own == taken * MIB, || {
                format!("{name} uses {own} bytes, and took {taken} MiB")
            })?;
            let used = device.used_bytes;
            self.check(used <= limit, || {
                format!("{name} uses {used} bytes, more than its limit of {limit}")
            })?;
            self.checks.push(format!("{name}: {taken} MiB of {limit} bytes"));
            return Ok(());
        }
    }
}

/// A size as one types it.
fn typed(bytes: u64) -> String {
    format_bytes(bytes).replace(' ', "")
}

fn mib(count: u64) -> String {
    format_bytes(count * MIB)
}

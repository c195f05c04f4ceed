// SPDX-License-Identifier: Apache-2.0
//! Every family while calls of the driver fail.

use super::books::*;
use crate::cases::{Random, tenth};
use crate::client::Client;
use crate::rig::{MIB, Rig, Spec};

/// Function that fails once, commands before it, the command that meets the failure.
const FAILING: &[(&str, &[&str], &str)] = &[
    ("cuMemAlloc_v2", &[], "alloc 4096 a"),
    ("cuMemAllocManaged", &[], "managed 4096 a"),
    ("cuMemAllocPitch_v2", &[], "pitch 1000 10 a"),
    ("cuMemCreate", &[], "create 2097152 a"),
    ("cuArrayCreate_v2", &[], "array1 64 64 32 4 a"),
    ("cuArray3DCreate_v2", &[], "array 64 64 0 32 1 0 a"),
    ("cuMipmappedArrayCreate", &[], "mipmap 64 64 0 32 1 0 3 a"),
    ("cuMemAllocAsync", &[], "allocasync 4096 a"),
    ("cuMemAllocFromPoolAsync", &["pool p"], "allocpool 4096 a p"),
    ("cuMemPoolCreate", &[], "pool q"),
    ("cuMemFree_v2", &["alloc 4096 a"], "freekeep a"),
    ("cuMemRelease", &["create 2097152 a"], "vreleasekeep a"),
    ("cuArrayDestroy", &["array 64 64 0 32 1 0 a"], "arrayfree a"),
    (
        "cuMipmappedArrayDestroy",
        &["mipmap 64 64 0 32 1 0 3 a"],
        "mipmapfree a",
    ),
    ("cuMemFreeAsync", &["allocasync 4096 a"], "freeasync a"),
    ("cuCtxCreate_v2", &[], "ctx 1 0"),
    ("cuDevicePrimaryCtxRetain", &[], "primary 0"),
];

/// Whatever a driver answers, codes that nobody knows yet included, is what the program sees, call by call.
pub fn own_codes(rig: &Rig) {
    for (function, before, command) in FAILING {
        for code in [999, 719, 4242] {
            let fault = format!("code:{function}:1:{code}");
            let mut under = rig.run(&["-m", "1GiB", "-g", "0"], &crate::artefacts::client(), &["dlopen"]);
            under.env("PARTAGE_SIM_FAULTS", &fault);
            let mut client = Client::start(under);
            // Without a context where making one is what fails.
            client.expect("init 0", "init 0");
            if *function != "cuCtxCreate_v2" {
                client.expect("ctx 0", "ctx 0");
            }
            for line in *before {
                done(&mut client, line);
            }
            let verb = command.split(' ').next().unwrap_or(command);
            let answer = client.say(command);
            let first = answer.split(' ').nth(1);
            assert_eq!(
                first,
                Some(code.to_string().as_str()),
                "{function}: {command}: {answer}"
            );
            // The failure was one call's: the same again succeeds.
            let again = client.say(command);
            assert_eq!(again.split(' ').nth(1), Some("0"), "{function}: {verb} again: {again}");
        }
    }
}

/// What the random calls of `injected` meet.
const INJECTED: [&str; 9] = [
    "oom:cuMemCreate:%7",
    "code:cuMemMap:%5:999",
    "code:cuMemUnmap:%5:999",
    "code:cuMemRelease:%6:999",
    "code:cuMemRetainAllocationHandle:%3:999",
    "oom:cuArray3DCreate_v2:%5",
    "code:cuArrayDestroy:%4:999",
    "oom:cuMipmappedArrayCreate:%4",
    "code:cuMipmappedArrayDestroy:%3:999",
];

/// Size of a piece of memory, and how many fit into the reserved range.
const UNIT: u64 = 2 * MIB;
const PLACES: u64 = 8;

/// What the program believes it has, from the driver's answers alone.
#[derive(Default)]
struct Belief {
    held: Vec<String>,
    /// By the command that frees each.
    arrays: Vec<(&'static str, String)>,
}

impl Belief {
    /// A random command; `None` when it would free an array and there is none.
    fn draw(&self, random: &mut Random, name: &str) -> Option<String> {
        let place = random.below(PLACES) * UNIT;
        let any = |random: &mut Random| {
            self.held
                .get(random.below(self.held.len() as u64) as usize)
                .cloned()
                .unwrap_or_else(|| "none".into())
        };
        Some(match random.below(9) {
            0 | 1 => format!("create {UNIT} {name}"),
            2 | 3 => format!("vmap range {place} {} {UNIT}", any(random)),
            4 => format!("vunmap range {place} {}", UNIT * (1 + random.below(2))),
            5 => format!("vrelease {}", any(random)),
            6 => format!("vretain {name} range {place}"),
            7 => match random.below(2) {
                0 => format!("array {} 64 0 32 1 0 {name}", 64 + random.below(512)),
                _ => format!("mipmap {} 64 0 32 1 0 3 {name}", 64 + random.below(512)),
            },
            _ => {
                let (verb, name) = self.arrays.get(random.below(self.arrays.len() as u64) as usize)?;
                format!("{verb} {name}")
            }
        })
    }

    /// `line` succeeded.
    fn note(&mut self, line: &str, name: String) {
        let words: Vec<_> = line.split(' ').collect();
        match words[0] {
            "create" | "vretain" => self.held.push(name),
            "vrelease" => self.held.retain(|other| other != words[1]),
            "array" => self.arrays.push(("arrayfree", name)),
            "mipmap" => self.arrays.push(("mipmapfree", name)),
            "arrayfree" | "mipmapfree" => self.arrays.retain(|(_, other)| other != words[1]),
            _ => {}
        }
    }

    /// Whatever is left goes, however often the driver refuses first.
    fn free_all(&self, client: &mut Client) {
        let held = self.held.iter().map(|name| format!("vrelease {name}"));
        let arrays = self.arrays.iter().map(|(verb, name)| format!("{verb} {name}"));
        for line in held.chain(arrays) {
            while !client.say(&line).ends_with(" 0") {}
        }
        for place in 0..PLACES {
            let line = format!("vunmap range {} {UNIT}", place * UNIT);
            // 1: nothing was mapped there.
            while client.say(&line).ends_with(" 999") {}
        }
    }
}

pub fn injected(rig: &Rig) {
    let rounds = 2000 / tenth() as u64;
    let mut random = Random::new(19);
    // Room for all that the full count makes: a denial would make the program differ from the one without Partage.
    let mut command = rig.run(&["-m", "12GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_SIM_FAULTS", INJECTED.join(";"));
    let mut client = Client::start(command);
    client.ready();
    // The same program with the same failures on a machine of its own, without Partage.
    let elsewhere = Rig::new(Spec::DEFAULT);
    let mut bare = elsewhere.command(crate::artefacts::client());
    bare.arg("dlopen").env("PARTAGE_SIM_FAULTS", INJECTED.join(";"));
    let mut bare = Client::start(bare);
    bare.ready();
    let room = client.room();
    for client in [&mut client, &mut bare] {
        client.expect(&format!("vreserve {} range", PLACES * UNIT), "vreserve 0");
    }
    let mut belief = Belief::default();
    let mut failed = 0;
    for step in 0..rounds {
        let name = format!("n{step}");
        let Some(line) = belief.draw(&mut random, &name) else {
            continue;
        };
        let answer = client.say(&line);
        assert_eq!(answer, bare.say(&line), "step {step}: {line}");
        failed += u32::from(answer.ends_with(" 999"));
        if answer.ends_with(" 0") {
            belief.note(&line, name);
        }
        if step % 25 == 0 {
            books_agree(rig, &line);
        }
    }
    assert!(failed > 20, "calls failed: {failed}");
    books_agree(rig, "at the end");
    belief.free_all(&mut client);
    assert_eq!(client.room(), room, "nothing drifted");
    books_agree(rig, "all gone");
}

/// Each entry point that allocates or frees fails inside the driver at a rhythm of its own.
pub fn mixed_with_failures(rig: &Rig) {
    let rounds = 4_000 / tenth();
    let calls = [
        "cuMemAlloc_v2",
        "cuMemAllocPitch_v2",
        "cuMemAllocManaged",
        "cuMemFree_v2",
        "cuArray3DCreate_v2",
        "cuMipmappedArrayCreate",
        "cuArrayDestroy",
        "cuMipmappedArrayDestroy",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressFree",
        "cuMemAllocAsync",
        "cuMemAllocFromPoolAsync",
        "cuMemFreeAsync",
        "cuStreamSynchronize",
        "cuMemPoolCreate",
        "cuMemPoolDestroy",
        "cuMemPoolTrimTo",
    ];
    let faults: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(at, call)| {
            // Full, as a program meets it, and a code that no call of ours would answer with.
            let makes = call.contains("Alloc") || call.ends_with("Create") || call.ends_with("Create_v2");
            let code = if makes && at % 2 == 0 { 2 } else { 999 };
            format!("code:{call}:%{}:{code}", 5 + at % 7)
        })
        .collect();
    let mut command = rig.run(&["-m", "2GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_SIM_FAULTS", faults.join(";"));
    let mut client = Client::start(command);
    client.ready();
    let mut random = Random::new(59);
    for turn in 0..2 {
        let answer = client.say(&format!("mix 16 {rounds} {} {}", 4 * MIB, random.below(1 << 30)));
        assert!(
            !answer.contains("denied=0 ") && !answer.contains("failed=0 ") && answer.ends_with(" other=0"),
            "both happened, and the program saw no other code than the driver's: {answer}"
        );
        books_agree(rig, &format!("after turn {turn}"));
        rig.note(answer);
    }
}

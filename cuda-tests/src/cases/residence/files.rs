// SPDX-License-Identifier: Apache-2.0
//! Files that a saved job writes and that others moved, cut or wrote to since, or that are too large to copy.

use std::path::Path;
use std::process::{Command, Stdio};

use super::super::{Case, tenth};
use super::habits::{Program, STEPS, end, kill, steps};
use super::said::{ok, state};
use super::saved::{criu, folder, not_restored, save};
use crate::artefacts::package_dir;
use crate::cases::matrix::python;
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new(
            "residence::a_log_that_cannot_be_cut_is_refused_with_what_helps",
            refused,
        )
        .simulated(WHY),
        Case::new(
            "residence::files_too_large_to_copy_are_refused_before_a_save",
            too_large,
        )
        .simulated(WHY),
    ]
}

/// A log by `>>` that was moved away since: the job goes on in the new one.
fn rotated(rig: &Rig, criu: &Path) {
    let program = Program::new(rig, ("log", ">>"), "rotated");
    let mut heard = Vec::new();
    let mut client = program.start();
    steps(&mut client, STEPS.0, &mut heard);
    save(rig, criu, &[]).expect("saved");
    steps(&mut client, STEPS.1, &mut heard);
    kill(rig, client);
    let moved = program.folder.join("train.log.1");
    std::fs::rename(program.log(), &moved).expect("ours");
    for (content, said) in [
        (None, "was gone: the job goes on in a new one"),
        (Some("rotated\n"), "is another file"),
    ] {
        if let Some(content) = content {
            std::fs::remove_file(program.log()).expect("there");
            std::fs::write(program.log(), content).expect("ours");
        }
        let mut again = program.restore(criu, &[]);
        heard.clear();
        steps(&mut again, 2, &mut heard);
        assert!(heard.iter().any(|line| line.contains(said)), "{heard:?}");
        end(again);
        let log = program.log_text();
        let lines = log.strip_prefix(content.unwrap_or_default()).expect("it begins so");
        assert!(lines.starts_with("step 20 ") && lines.lines().count() == 2, "{log}");
        rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    }
    let lines = std::fs::read_to_string(moved).expect("there").lines().count();
    assert_eq!(lines, (STEPS.0 + STEPS.1) as usize);
    std::fs::remove_dir_all(folder(rig)).expect("ours");
}

fn refused(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let program = Program::new(rig, ("log", ">>"), "appended");
    let mut heard = Vec::new();
    let mut client = program.start();
    steps(&mut client, STEPS.0, &mut heard);
    save(rig, &criu, &[]).expect("saved");
    let saved = program.log_text();
    steps(&mut client, STEPS.1, &mut heard);
    kill(rig, client);
    let grown = program.log_text();
    let (code, said) = not_restored(rig, &criu, &["--files", "refuse"]);
    assert!(
        code == Some(125) && said.contains("train.log was changed since the job was saved"),
        "{said}"
    );
    damaged(rig, &program, &criu);
    // Somebody else writes to the log, as the script does that restores its job.
    let mut other = writer(&program.log());
    let mut again = program.restore(&criu, &[]);
    heard.clear();
    steps(&mut again, 1, &mut heard);
    let said = "train.log, too: it is left as it is, and the job goes on at its end";
    assert!(heard.iter().any(|line| line.contains(said)), "{heard:?}");
    end(again);
    let log = program.log_text();
    let more = log.strip_prefix(&grown).expect("it goes on at its end");
    assert!(more.starts_with("step 20 ") && more.lines().count() == 1, "{more}");
    other.kill();
    rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    // Cut, it reads like one run.
    let mut again = program.restore(&criu, &[]);
    steps(&mut again, 1, &mut heard);
    end(again);
    assert_eq!(
        program.log_text().strip_prefix(&saved).map(|more| more.lines().count()),
        Some(1)
    );
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    shortened(rig, &criu);
    if tenth() == 1 {
        std::fs::remove_dir_all(folder(rig)).expect("ours");
        rotated(rig, &criu);
    }
}

/// Where a page is damaged, no file is changed for a restore that cannot be.
fn damaged(rig: &Rig, program: &Program<'_>, criu: &Path) {
    let pages = Path::new(&folder(rig)).join("gen-0001/criu/pages-1.img");
    let content = std::fs::read(&pages).expect("there");
    let mut changed = content.clone();
    changed[content.len() / 2] ^= 1;
    std::fs::write(&pages, &changed).expect("ours");
    let grown = program.log_text();
    let (code, said) = not_restored(rig, criu, &[]);
    assert!(code == Some(125) && said.contains("pages-1.img is damaged"), "{said}");
    assert_eq!(program.log_text(), grown);
    std::fs::write(&pages, content).expect("ours");
}

/// A process that can write to a file.
fn writer(path: &Path) -> Client {
    let mut other = Command::new("sh");
    other.args(["-c", "exec 3>>\"$0\"; echo; read end"]).arg(path);
    let mut other = Client::start(other);
    other.answer();
    other
}

/// A file that is not appended to has to have at least its length, and is not cut under another's hands.
fn shortened(rig: &Rig, criu: &Path) {
    std::fs::remove_dir_all(folder(rig)).expect("ours");
    let program = Program::new(rig, ("csv", ""), "shortened");
    let mut heard = Vec::new();
    let mut client = program.start();
    steps(&mut client, STEPS.0, &mut heard);
    save(rig, criu, &["--stop"]).expect("saved");
    client.kill();
    rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    let table = program.folder.join("table.csv");
    let whole = std::fs::read(&table).expect("there");
    let file = std::fs::File::options().write(true).open(&table).expect("ours");
    file.set_len(7).expect("ours");
    // The test is another that can write to it.
    drop(file);
    for mode in ["cut", "keep"] {
        let (code, said) = not_restored(rig, criu, &["--files", mode]);
        let text = format!("table.csv has 7 B, and had {} B when the job was saved", whole.len());
        assert!(code == Some(125) && said.contains(&text), "{said}");
    }
    let longer = [&whole[..], b"and more\n"].concat();
    std::fs::write(&table, &longer).expect("ours");
    let mut other = writer(&table);
    let (code, said) = not_restored(rig, criu, &[]);
    assert!(
        code == Some(125) && said.contains(" can write to it, too: it is not changed"),
        "{said}"
    );
    assert!(said.contains("end what writes to it first"), "{said}");
    assert_eq!(std::fs::read(&table).expect("there"), longer);
    other.kill();
    // What is said helps.
    let mut again = program.restore(criu, &[]);
    steps(&mut again, 1, &mut heard);
    end(again);
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    // So does what is said of a file that is gone.
    std::fs::remove_file(&table).expect("ours");
    let (_, said) = not_restored(rig, criu, &[]);
    let remedy = said.split_once("taken for it: ").expect("it says what to do").1;
    let remedy = remedy.split_once(", and restore").expect("a command").0;
    assert!(
        Command::new("sh")
            .args(["-c", remedy])
            .status()
            .expect("started")
            .success()
    );
    let mut again = program.restore(criu, &["--files", "keep"]);
    steps(&mut again, 1, &mut heard);
    end(again);
    assert!(std::fs::metadata(&table).expect("there").len() > whole.len() as u64);
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn too_large(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let program = Program::new(rig, ("memmaprw", ""), "large");
    let mut heard = Vec::new();
    let mut client = program.start();
    steps(&mut client, STEPS.0, &mut heard);
    let (code, said) = save(rig, &criu, &["--files-max", "1KiB"]).expect_err("it has 16 KiB");
    assert!(
        code == Some(1) && said.contains("array.dat is written in place and has to be copied: 16 KiB"),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "running");
    let asked = said
        .rsplit_once("Ask for --files-max ")
        .map(|(_, asked)| asked.trim())
        .expect("it says how much");
    save(rig, &criu, &["--files-max", asked]).expect("what it says helps");
    steps(&mut client, 1, &mut heard);
    kill(rig, client);
    // And with the job saved again and again.
    let script = package_dir().join("programs/habits.py").display().to_string();
    let (place, out) = (program.folder.display().to_string(), folder(rig));
    let mut run = rig.run(
        &[
            "-m",
            "1GiB",
            "-g",
            "0",
            "--name",
            "one",
            "--checkpoint-every",
            "1s",
            "--checkpoint-out",
            &out,
            "--files-max",
            "1KiB",
        ],
        &python(),
        &[&script, "memmaprw", &place],
    );
    run.env("PARTAGE_CRIU", &criu).stderr(Stdio::piped());
    let mut client = Client::start(run);
    steps(&mut client, 1, &mut heard);
    rig.eventually(PATIENCE, "it is said", || {
        ok(rig, &["events"]).contains("array.dat is written in place")
    });
    end(client);
}

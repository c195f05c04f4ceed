// SPDX-License-Identifier: Apache-2.0
//! The recipes of docs/administrators.md, tried as they are written: on a host with an installed broker each recipe's
//! configuration is put in place, and its commands are typed by the users that the page names.
//!
//! A recipe is a `###` section below `## Recipes`. Its `toml` block is the host's partage.toml. In its `text` blocks
//! `root# …` and `alice$ …` are typed, a line of a crontab is run as cron would, and what stands below a command is
//! what it has to print, where `…` stands for anything. A command with nothing below it has to succeed. One that ends
//! with `&` goes on; it is a job before the next is typed. `<!-- recipe: cgroup PATH -->` has alice type in that
//! cgroup.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::host::{Host, code_and_text};
use crate::rig::Rig;

/// Nothing is timed by it; it only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(30);

/// Users, and the groups in which the page has them.
const USERS: &str = "echo 'carol:x:60003:60003::/tmp:/bin/sh' >>/etc/passwd
printf '%s\\n' students:x:60010:alice,bob guests:x:60011:bob >>/etc/group";
/// What the recipes' users start: a long program, a short one, and one without `partage run`.
const PROGRAMS: [(&str, &str); 3] = [
    ("train", "exec sleep 600"),
    ("eval", "exec true"),
    (
        "notebook",
        "exec env LD_PRELOAD=/usr/local/lib/partage/libpartage.so LD_LIBRARY_PATH=$SIM/lib PARTAGE_SIM_DIR=$SIM \
         PARTAGE_SOCKET_DIR=/run/partage $CLIENT dlopen",
    ),
];

struct Recipe {
    title: String,
    configuration: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    user: String,
    cgroup: Option<String>,
    command: String,
    shown: Vec<String>,
}

/// The recipes of the page.
fn recipes() -> Vec<Recipe> {
    let page = crate::artefacts::package_dir().join("../docs/administrators.md");
    let page = std::fs::read_to_string(&page).unwrap_or_else(|why| panic!("{}: {why}", page.display()));
    let chapter = page.split("\n## Recipes\n").nth(1).expect("the page has recipes");
    let chapter = chapter.split("\n## ").next().unwrap_or(chapter);
    chapter.split("\n### ").skip(1).map(recipe).collect()
}

fn recipe(text: &str) -> Recipe {
    let mut recipe = Recipe {
        title: text.lines().next().unwrap_or_default().to_owned(),
        configuration: String::new(),
        steps: Vec::new(),
    };
    let (mut block, mut cgroup) = (None, None);
    for line in text.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(kind), None) => block = Some(kind),
            (Some(_), Some(_)) => block = None,
            (None, Some("toml")) => recipe.configuration.push_str(&format!("{line}\n")),
            (None, Some("text")) => recipe.read(line, cgroup.as_ref()),
            (None, Some(kind)) => panic!("{}: a block of {kind} that nobody tries", recipe.title),
            (None, None) => {
                if let Some(path) = line.strip_prefix("<!-- recipe: cgroup ") {
                    cgroup = Some(path.trim_end_matches(" -->").to_owned());
                }
            }
        }
    }
    recipe
}

impl Recipe {
    /// A line of a block of commands.
    fn read(&mut self, line: &str, cgroup: Option<&String>) {
        let prompt = line.find("$ ").or_else(|| line.find("# ").filter(|at| *at > 0));
        let is_prompt = |at: usize| line[..at].chars().all(|letter| letter.is_ascii_lowercase());
        if let Some(at) = prompt.filter(|at| is_prompt(*at)) {
            self.steps.push(Step {
                user: line[..at].to_owned(),
                cgroup: cgroup.filter(|_| line.starts_with("alice")).cloned(),
                command: line[at + 2..].to_owned(),
                shown: Vec::new(),
            });
            return;
        }
        // `0 17 * * 1-5 root COMMAND`: five fields of times, and a user.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_time = |field: &&&str| field.bytes().all(|byte| b"0123456789*-,/".contains(&byte));
        if fields.len() > 6 && fields.iter().take(5).filter(is_time).count() == 5 {
            self.steps.push(Step {
                user: fields[5].to_owned(),
                cgroup: None,
                command: fields[6..].join(" "),
                shown: Vec::new(),
            });
        } else if !line.starts_with("# ") {
            let step = self.steps.last_mut();
            let step = step.unwrap_or_else(|| panic!("{}: output without a command: {line}", self.title));
            step.shown.push(line.to_owned());
        }
    }
}

/// Is this what the page shows?
fn is_shown(shown: &[String], said: &str) -> bool {
    let in_a_row = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, said) = (in_a_row(&shown.join(" ")), in_a_row(said));
    let parts: Vec<&str> = shown.split('…').map(str::trim).collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return said == shown;
    }
    let mut rest = match said.strip_prefix(first) {
        Some(rest) => rest,
        None => return false,
    };
    for part in &parts[1..parts.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A cgroup of this machine's; it goes with this.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes were killed and are about to be gone.
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The folder above it, if it was made for this.
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}

impl Cgroup {
    /// Makes it, or says why this machine cannot.
    fn new(path: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let kinds = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        });
        let mounted = kinds
            .filter(|(_, kind)| *kind == "cgroup2")
            .map(|(folder, _)| folder)
            .next()?;
        let folder = PathBuf::from(format!("{mounted}{path}"));
        std::fs::create_dir_all(&folder).ok()?;
        Some(Self(folder))
    }
}

struct Trial<'a> {
    host: &'a Host<'a>,
    running: Vec<Child>,
    /// What the page has wrong.
    wrong: Vec<String>,
    cgroup: Option<(String, Option<Cgroup>)>,
}

impl Trial<'_> {
    fn jobs(&self) -> Vec<String> {
        let jobs = self.host.json("0", &["partage", "ps", "--json"])["jobs"].clone();
        let ids = jobs.as_array().into_iter().flatten();
        ids.filter_map(|job| job["job"].as_str().map(str::to_owned)).collect()
    }

    /// As a user of the host types it; none where it needs a cgroup that cannot be made.
    fn command(&mut self, step: &Step, typed: &str) -> Option<Command> {
        let uid = match step.user.as_str() {
            "root" => "0",
            "alice" => "60001",
            "bob" => "60002",
            "carol" => "60003",
            other => panic!("the host has no user {other}"),
        };
        let client = self.host.rig.dir.join("client").display().to_string();
        let sim = self.host.rig.sim_dir().display().to_string();
        let mut line = format!("cd /tmp && export CLIENT={client} SIM={sim} && {typed}");
        let mut as_user = uid;
        if let Some(path) = &step.cgroup {
            if self.cgroup.as_ref().is_none_or(|(made, _)| made != path) {
                self.cgroup = Some((path.clone(), Cgroup::new(path)));
            }
            let Some((_, Some(cgroup))) = &self.cgroup else {
                println!("SKIPPED: no cgroup {path} can be made here: {typed}");
                return None;
            };
            let enter = format!("echo $$ >{}/cgroup.procs", cgroup.0.display());
            let user = format!("exec setpriv --reuid {uid} --regid 65534 --clear-groups -- sh -c");
            line = format!("{enter} && {user} '{line}'");
            as_user = "0";
        }
        Some(self.host.command(as_user, false, &["sh", "-c", &line]))
    }

    fn step(&mut self, title: &str, step: &Step) {
        if let Some(typed) = step.command.strip_suffix(" &") {
            let before = self.jobs().len();
            let Some(mut command) = self.command(step, typed) else {
                return;
            };
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = command.spawn().expect("it starts");
            // The notebook's client does as it is told; others do not read.
            let input = child.stdin.as_mut().expect("piped");
            let _ = input.write_all(b"init 0\nctx 0\n");
            self.running.push(child);
            self.host
                .rig
                .eventually(SOON, &format!("{title}: {typed} is a job"), || {
                    self.jobs().len() > before
                });
            return;
        }
        // What only looks is asked again until it shows what a job does a moment later.
        let end = Instant::now() + SOON;
        loop {
            let Some(command) = self.command(step, &step.command) else {
                return;
            };
            let (code, said) = code_and_text(&self.host.rig.output(command));
            let is_right = match step.shown.as_slice() {
                [] => code == Some(0),
                shown => is_shown(shown, &said),
            };
            if is_right {
                return;
            }
            let words = ["ps", "get", "why", "status", "queue"];
            let looks = words
                .iter()
                .any(|word| step.command.starts_with(&format!("partage {word}")));
            if !looks || Instant::now() >= end {
                self.wrong.push(format!(
                    "{title}: {}$ {}\nends with {code:?} and prints\n{said}\nand the page shows\n{}",
                    step.user,
                    step.command,
                    step.shown.join("\n")
                ));
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn recipe(&mut self, recipe: &Recipe) {
        let text = match recipe.configuration.as_str() {
            "" => "schema = 1\n",
            text => text,
        };
        let file = self.host.rig.dir.join("recipe.toml");
        std::fs::write(&file, text).expect("writable");
        let place = format!(
            "rm -rf /etc/partage/conf.d && cp {} /etc/partage/partage.toml && {program} check && {program} reload",
            file.display(),
            program = "partage config"
        );
        let (code, said) = self.host.say("0", &["sh", "-c", &place]);
        assert_eq!(code, Some(0), "{}: {said}", recipe.title);
        assert!(!recipe.steps.is_empty(), "{}: no command", recipe.title);
        for step in &recipe.steps {
            self.step(&recipe.title, step);
        }
        for job in self.jobs() {
            self.host.say("0", &["partage", "stop", &job, "--grace", "0s"]);
        }
        for child in &mut self.running {
            // Not killed from outside, which would leave something of it on the host: what it waits for is over.
            drop(child.stdin.take());
            self.host.rig.eventually(SOON, "a program ends with its job", || {
                child.try_wait().expect("our own child").is_some()
            });
        }
        self.running.clear();
        self.host
            .rig
            .eventually(SOON, "its jobs are gone", || self.jobs().is_empty());
        self.cgroup = None;
    }
}

pub fn as_written(rig: &Rig) {
    let recipes = recipes();
    assert!(recipes.len() >= 10, "{} recipes", recipes.len());
    let Some(host) = Host::new(rig) else { return };
    assert_eq!(host.say("0", &["sh", "-c", USERS]).0, Some(0));
    for (name, text) in PROGRAMS {
        let file = rig.dir.join("host/tmp").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("writable");
        let status = Command::new("/bin/chmod").arg("755").arg(&file).status();
        assert!(status.is_ok_and(|status| status.success()));
    }
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(0), "{said}");
    let mut trial = Trial {
        host: &host,
        running: Vec::new(),
        wrong: Vec::new(),
        cgroup: None,
    };
    for recipe in &recipes {
        trial.recipe(recipe);
    }
    assert!(trial.wrong.is_empty(), "{}", trial.wrong.join("\n\n"));
    rig.note(format!("{} recipes", recipes.len()));
}

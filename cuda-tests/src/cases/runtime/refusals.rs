// SPDX-License-Identifier: Apache-2.0
//! Every function of the stand-ins that is not built, by the lists of their names: it answers its library's code for
//! "not supported", and names itself once however often it is called.

use std::collections::BTreeMap;
use std::path::PathBuf;

use partage_stand_ins::{Cuda, Library, Name, built, libraries};

use super::program::providers;
use crate::artefacts::program;
use crate::rig::Rig;

/// What a function answers that answers a text.
const TEXT: &str = "not built in Partage's stand-in";

/// The names of a file that lead to a refusal.
fn refused(library: &Library, cuda: Cuda) -> Vec<Name> {
    let providers = providers();
    let (has, _) = built(library, cuda, &providers.each_ref().map(PathBuf::as_path)).expect("read");
    let since = if cuda == Cuda::Twelve { "cuda12" } else { "cuda13" };
    let is_refused = |name: &Name| {
        // Each of the runtime's has a row, which says whether more than a refusal is behind it.
        let is_a_row = library.name == "cudart";
        !has.iter().any(|built| built == name.symbol) || is_a_row && !partage_sim_runtime::is_built(name.symbol, since)
    };
    library.names(cuda).into_iter().filter(is_refused).collect()
}

pub fn each_says_itself_once(rig: &Rig) {
    let walker = program("refusals", "refusals.c", &["-ldl"]);
    let machine = format!("refusals-{}", std::process::id());
    let mut command = rig.partage(&["sim", "--machine", &machine, "--cuda-runtime", "--"]);
    command.arg(walker);
    let (mut answers, mut said) = (Vec::new(), BTreeMap::new());
    for library in libraries() {
        for (cuda, file) in library.files() {
            command.args([&file, library.version(cuda).unwrap_or("none")]);
            for name in refused(&library, cuda) {
                let answer = match name.is_text {
                    true => TEXT.to_owned(),
                    false => name.answer.unwrap_or(library.refusal).to_string(),
                };
                answers.push(format!("{file} {} {answer} {answer}", name.symbol));
                command.arg(format!("{}{}", name.symbol, if name.is_text { ":text" } else { "" }));
                if !library.is_quiet {
                    *said.entry(name.symbol.to_owned()).or_insert(0) += 1;
                }
            }
            command.arg("--");
        }
    }
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.lines().collect::<Vec<_>>(), answers);
    // Once for each file that has it.
    let mut heard = BTreeMap::new();
    let lines = errors.lines().filter_map(|line| line.strip_prefix("partage sim: "));
    for (name, _) in lines.filter_map(|line| line.split_once(" is not built in the stand-in for ")) {
        *heard.entry(name.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(heard, said);
    let count = |library: &str| answers.iter().filter(|line| line.starts_with(library)).count();
    assert!(count("libcudart.so.12") > 100 && count("libcudart.so.13") > 100 && count("libcublas") > 50);
    rig.note(format!("{} functions are not built", answers.len()));
}

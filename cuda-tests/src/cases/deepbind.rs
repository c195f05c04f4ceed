// SPDX-License-Identifier: Apache-2.0
//! Libraries that are opened with RTLD_DEEPBIND: their limit holds, and they find their own symbols first as ever.

use std::path::{Path, PathBuf};

use super::Case;
use super::matrix::python;
use crate::artefacts::program;
use crate::rig::{GIB, MIB, Rig, link_driver};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("deepbind::two_that_look_the_driver_up", two_that_ask_by_name),
        Case::new("deepbind::linked_with_the_driver", linked),
        Case::new("deepbind::found_by_the_callers_search_path", found_by_search_path),
        Case::new("deepbind::python_opens_so", python_opens_so),
        Case::new("deepbind::a_constructor_that_comes_first_is_told", constructor_first),
        Case::new(
            "deepbind::a_short_client_inside_a_namespace_is_told",
            short_in_a_namespace,
        )
        .simulated("a second copy of the vendor's driver in one process is not supported by the vendor"),
    ]
}

/// What a library does under `-m 2GiB`, whose symbol `whose_am_i` answers `tag`.
fn limited(tag: u32) -> String {
    format!("whose {tag}\ninit 0\ndevice 0\ncontext 0\nfits 0\nover 2\n")
}

fn plugin(name: &str, arguments: &[&str]) -> PathBuf {
    let mut all = vec!["-shared", "-fPIC", "-Wl,--allow-shlib-undefined"];
    all.extend(arguments);
    all.push("-ldl");
    program(name, "deep_plugin.c", &all)
}

#[track_caller]
fn expect(rig: &Rig, binding: &str, plugins: &[&Path], expected: &str) -> String {
    // The program has the libraries' symbol in the global scope, where one without the flag would find it.
    let main = program("deep_main", "deep_main.c", &["-rdynamic", "-ldl"]);
    let sizes = [(512 * MIB).to_string(), (2 * GIB + 1).to_string()];
    let mut arguments = vec![sizes[0].as_str(), sizes[1].as_str(), binding];
    let paths: Vec<String> = plugins.iter().map(|path| path.display().to_string()).collect();
    arguments.extend(paths.iter().map(String::as_str));
    let output = rig.output(rig.run(&["-m", "2GiB"], &main, &arguments));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
    error
}

fn two_that_ask_by_name(rig: &Rig) {
    let (one, two) = (plugin("deep_one.so", &["-DTAG=1"]), plugin("deep_two.so", &["-DTAG=2"]));
    for binding in ["now", "lazy"] {
        let said = expect(
            rig,
            binding,
            &[&one, &two],
            &format!("{}{}mine 0\n", limited(1), limited(2)),
        );
        assert!(!said.contains("no limit held"), "{said}");
    }
}

fn linked(rig: &Rig) {
    let driver = link_driver(rig);
    let driver = driver.iter().map(String::as_str);
    let with = |name, more: &[&str]| {
        let mut arguments = vec!["-DTAG=3", "-DLINKED", "-Wl,--no-as-needed"];
        arguments.extend(more);
        arguments.extend(driver.clone());
        plugin(name, &arguments)
    };
    let expected = format!("{}mine 0\n", limited(3));
    // Its tables stay writable, or are made read-only once they are filled in.
    for (name, how) in [
        ("deep_linked_lazy.so", "-Wl,-z,lazy,-z,norelro"),
        ("deep_linked_now.so", "-Wl,-z,now,-z,relro"),
    ] {
        expect(rig, "lazy", &[&with(name, &[how])], &expected);
    }
}

fn found_by_search_path(rig: &Rig) {
    plugin("deep_beside.so", &["-DTAG=4"]);
    let opener = plugin(
        "deep_opener.so",
        &["-DTAG=5", "-DOPENS=\"deep_beside.so\"", "-Wl,-rpath,$ORIGIN"],
    );
    expect(rig, "now", &[&opener], &format!("{}mine 0\n", limited(4)));
}

fn python_opens_so(rig: &Rig) {
    let plugin = plugin("deep_python.so", &["-DTAG=6"]);
    let script = format!(
        "import ctypes, os, sys\n\
         d = ctypes.CDLL({:?}, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)\n\
         sys.exit(d.run(ctypes.c_size_t({}), ctypes.c_size_t({})))\n",
        plugin.display().to_string(),
        512 * MIB,
        2 * GIB + 1
    );
    let output = rig.output(rig.run(&["-m", "2GiB"], &python(), &["-c", &script]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        limited(6),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What such a library looks up in its constructor, it looks up before we can be in its way. The process says so at its
/// end, however short it lived.
fn constructor_first(rig: &Rig) {
    let early = plugin("deep_early.so", &["-DTAG=7", "-DEARLY"]);
    let said = expect(rig, "now", &[&early], &limited(7).replace("over 2", "over 0\nmine 0"));
    assert_eq!(said.matches("no limit held for process").count(), 1, "{said}");
}

fn short_in_a_namespace(rig: &Rig) {
    let plugin = program(
        "namespace_plugin.so",
        "namespace_plugin.c",
        &["-shared", "-fPIC", "-ldl"],
    );
    let main = program("namespace_main", "namespace_main.c", &["-ldl"]);
    let output = rig.output(rig.run(&["-m", "2GiB"], &main, &[&plugin.display().to_string()]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "plugin 0\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("no limit held for process").count(), 1, "{said}");
}

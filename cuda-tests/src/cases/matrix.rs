// SPDX-License-Identifier: Apache-2.0
//! The interposition matrix: every way a program reaches the driver sees its limit.

use std::path::PathBuf;

use super::Case;
use crate::artefacts::{built, program};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig, link_driver};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("matrix::linked", linked),
        Case::new("matrix::dlopen", |rig| by(rig, "dlopen")),
        Case::new("matrix::absolute_path", |rig| by(rig, "abs")),
        Case::new("matrix::deepbind", |rig| by(rig, "deepbind")),
        Case::new("matrix::proc_address_v1_only", |rig| by(rig, "gpa1")),
        Case::new("matrix::proc_address_v2_only", |rig| by(rig, "gpa2")),
        Case::new("matrix::rtld_default", |rig| by(rig, "default")),
        Case::new("matrix::libcudart_start_up_steps", |rig| by(rig, "cudart")),
        Case::new("matrix::dlmopen_handle", |rig| by(rig, "dlmopen"))
            .simulated("a second copy of the vendor's driver in one process is not supported by the vendor"),
        Case::new("matrix::client_inside_a_namespace_is_listed", inside_a_namespace)
            .simulated("a second copy of the vendor's driver in one process is not supported by the vendor"),
        Case::new("matrix::cached_before_constructors", cached_early),
        Case::new("matrix::weak_symbols_without_a_driver", weak_without_driver)
            .simulated("a machine with a driver cannot show what happens without one"),
        Case::new("matrix::python_ctypes", python_ctypes),
        Case::new("matrix::second_hook_before_and_after", second_hook),
        Case::new("matrix::default_from_a_local_plugin", local_plugin),
        Case::new("matrix::foreign_names_are_untouched", foreign_names),
    ]
}

/// What every client must see under `-m 2GiB`.
#[track_caller]
pub fn sees_two_gib(client: &mut Client) {
    client.ready();
    client.expect("total 0", &format!("total 0 {}", 2 * GIB));
    let info = client.numbers("info");
    assert_eq!(info[0], 0, "cuMemGetInfo");
    assert_eq!(info[2], 2 * GIB, "total is the limit");
    assert!(info[1] <= 2 * GIB, "free within the limit");
    client.expect(&format!("alloc {} over", 2 * GIB + 1), "alloc 2");
    client.expect(&format!("alloc {} fits", GIB), "alloc 0");
    client.expect("fill fits 165", "fill 0 165 165");
    client.expect(&format!("alloc {} second", GIB + MIB), "alloc 2");
    client.expect("free fits", "free 0");
    client.expect(&format!("alloc {} again", GIB + 256 * MIB), "alloc 0");
    client.expect("free again", "free 0");
}

fn by(rig: &Rig, via: &str) {
    sees_two_gib(&mut rig.client_via(&["-m", "2GiB"], via));
}

fn linked(rig: &Rig) {
    sees_two_gib(&mut Client::start(rig.run(
        &["-m", "2GiB"],
        &linked_client(rig),
        &["link"],
    )));
}

fn cached_early(rig: &Rig) {
    let client = program("client-early", "client.c", &["-DCACHE_EARLY", "-ldl", "-lpthread"]);
    sees_two_gib(&mut Client::start(rig.run(&["-m", "2GiB"], &client, &["dlopen"])));
}

fn weak_without_driver(rig: &Rig) {
    let weak = program("client-weak", "client.c", &["-DVIA_WEAK", "-ldl", "-lpthread"]);
    // Without a driver ours must neither crash nor load anything.
    let mut command = rig.command(&weak);
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("PARTAGE_SIM_DIR")
        .arg("weak")
        .env("LD_PRELOAD", built("libpartage.so"));
    let mut client = Client::start(command);
    // Our exports answer weak references: the program sees a driver that is only a stub, and says so.
    client.expect("present", "present 1");
    client.expect("init 0", "init 34");
    client.expect("loaded libcuda.so.1", "loaded 0");
}

fn inside_a_namespace(rig: &Rig) {
    let plugin = program(
        "namespace_plugin.so",
        "namespace_plugin.c",
        &["-shared", "-fPIC", "-ldl"],
    );
    let main = program("namespace_main", "namespace_main.c", &["-ldl"]);
    let mut client = Client::start(rig.run(&["-m", "2GiB"], &main, &[&plugin.display().to_string()]));
    assert_eq!(client.answer(), "plugin 0", "the program works as without us");
    rig.eventually(crate::client::PATIENCE, "listed in ps", || {
        rig.jobs()
            .iter()
            .any(|job| job["notes"].to_string().contains("namespace"))
            || rig.json(&["ps"])["unmanaged"]
                .as_array()
                .is_some_and(|list| list.iter().any(|p| p["pid"].as_u64() == Some(u64::from(client.pid()))))
    });
}

fn python_ctypes(rig: &Rig) {
    let script = rig.dir.join("ctypes_client.py");
    std::fs::write(
        &script,
        "import ctypes as c\n\
         d=c.CDLL('libcuda.so.1')\n\
         n=c.c_size_t(); x=c.c_void_p(); p=c.c_uint64()\n\
         print(d.cuInit(0), d.cuCtxCreate_v2(c.byref(x),0,0), d.cuDeviceTotalMem_v2(c.byref(n),0), n.value)\n\
         print(d.cuMemAlloc_v2(c.byref(p), c.c_size_t(3<<30)), d.cuMemAlloc_v2(c.byref(p), c.c_size_t(1<<30)))\n",
    )
    .expect("writable");
    let output = rig.output(rig.run(&["-m", "2GiB"], &python(), &[&script.display().to_string()]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("0 0 0 {}\n2 0\n", 2 * GIB),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The interpreter that scripts/test names, with the clients' packages; else that of the search path, resolved: version
/// managers put shell wrappers in front of it.
pub fn python() -> PathBuf {
    if let Some(given) = std::env::var_os("PARTAGE_TEST_PYTHON") {
        return given.into();
    }
    let output = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python3 is installed by scripts/test");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

fn second_hook(rig: &Rig) {
    let hook = program("second_hook.so", "second_hook.c", &["-shared", "-fPIC", "-ldl"]);
    for before in [true, false] {
        let command = if before {
            // Theirs first: env inside the job puts it in front of ours.
            let ours = "$LD_PRELOAD";
            let line = format!(
                "LD_PRELOAD={}:{ours} exec {} link",
                hook.display(),
                linked_client(rig).display()
            );
            rig.run(&["-m", "2GiB"], std::path::Path::new("/bin/sh"), &["-c", &line])
        } else {
            // Theirs is in LD_PRELOAD already: `run` puts ours first and keeps it.
            let mut command = rig.run(&["-m", "2GiB"], &linked_client(rig), &["link"]);
            command.env("LD_PRELOAD", &hook);
            command
        };
        let mut client = Client::start(command);
        sees_two_gib(&mut client);
        // Seen by their hook where it stands first; loaded and silent where ours does.
        let calls = client.numbers("hookcalls");
        assert_eq!(calls.len(), 1, "their library is loaded");
        assert!(
            !before || calls[0] >= 4,
            "every allocation passed their hook: {calls:?}"
        );
    }
}

fn linked_client(rig: &Rig) -> PathBuf {
    let driver = link_driver(rig);
    let mut arguments: Vec<&str> = vec!["-DVIA_LINK", "-ldl", "-lpthread", "-Wl,--allow-shlib-undefined"];
    arguments.extend(driver.iter().map(String::as_str));
    program("client-linked", "client.c", &arguments)
}

fn local_plugin(rig: &Rig) {
    let driver = link_driver(rig);
    let mut arguments: Vec<&str> = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"];
    arguments.extend(driver.iter().map(String::as_str));
    arguments.push("-ldl");
    let plugin = program("local_plugin.so", "local_plugin.c", &arguments);
    let main = program("local_plugin_main", "local_plugin_main.c", &["-ldl"]);
    let fits = (GIB).to_string();
    let over = (2 * GIB + 1).to_string();
    let output = rig.output(rig.run(&["-m", "2GiB"], &main, &[&plugin.display().to_string(), &fits, &over]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "init 0\nctx 0\nfits 0\nover 2\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn foreign_names(rig: &Rig) {
    let mut under = rig.client(&["-m", "2GiB"]);
    let mut bare = rig.bare_client("dlopen");
    for name in [
        "curl_easy_init",
        "cudnnCreate",
        "cublasCreate_v2",
        "cuBLAS",
        "cu",
        "cudaMalloc",
        "malloc",
        "nvmlx",
    ] {
        for scope in ["default", "next", "handle"] {
            let line = format!("dlsym {scope} {name}");
            assert_eq!(under.say(&line), bare.say(&line), "{line}");
        }
    }
    // A program that only looks such names up loads no driver because of us.
    let script = "import ctypes; d=ctypes.CDLL(None)\n\
                  for n in ('curl_easy_init','cudnnCreate','cublasCreate_v2'):\n\
                  \x20try: getattr(d,n)\n\
                  \x20except AttributeError: pass\n\
                  print('libcuda' in open('/proc/self/maps').read())";
    let output = rig.output(rig.run(&["-m", "2GiB"], &python(), &["-c", script]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "False\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

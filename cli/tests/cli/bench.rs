// SPDX-License-Identifier: Apache-2.0
//! A folder for one test: a socket directory, stand-ins for the installed files, and commands with an environment of
//! their own (the test process's is never changed).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder; removed at the end.
pub struct Bench {
    /// Its path; short, because a socket's path holds 107 bytes.
    pub dir: PathBuf,
}

impl Bench {
    /// Makes the folder with stand-ins for library and broker.
    pub fn new() -> Self {
        partage_machine::signals::pass_none_on();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("pc{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).expect("make the test's folder");
        let bench = Self { dir };
        std::fs::create_dir(bench.lib()).expect("make lib");
        for name in ["libpartage.so", "libpartage_sim_cuda.so", "libpartage_sim_nvml.so"] {
            copy(harmless_library(), &bench.lib().join(name));
        }
        bench.script("lib/partaged", "exit 1");
        bench
    }

    /// `PARTAGE_LIB_DIR`.
    pub fn lib(&self) -> PathBuf {
        self.dir.join("lib")
    }

    /// The socket directory.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Writes an executable shell script and gives its path.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        self.file(name, format!("#!/bin/sh\n{text}\n").as_bytes(), 0o755)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.dir.join(name);
        write(&path, content);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// `partage ARGUMENTS` with this bench's environment and nothing of the caller's but PATH.
    pub fn partage(&self, arguments: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_partage"), arguments)
    }

    /// Any program with the same environment.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", &self.dir)
            .env("PARTAGE_LIB_DIR", self.lib())
            .env("PARTAGE_SOCKET_DIR", self.socket_dir())
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's folder is kept: {}", self.dir.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Writes a file by way of a child. A descriptor that is open for writing here would be inherited by whatever another
/// test thread starts at that moment, and executing the file would fail with "text file busy".
fn write(path: &Path, content: &[u8]) {
    use std::io::Write;
    let mut child = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(content)
        .expect("cat reads");
    assert!(child.wait().expect("ends").success());
}

/// Copies a file, for the same reason by way of a child.
pub fn copy(from: &Path, to: &Path) {
    assert!(
        Command::new("/bin/cp")
            .arg(from)
            .arg(to)
            .status()
            .expect("cp starts")
            .success()
    );
}

/// What a command gave: code (128 + signal), standard output, standard error.
pub fn result(mut command: Command) -> (i32, String, String) {
    of(&command.output().expect("the command starts"))
}

/// The same of an output.
pub fn of(output: &Output) -> (i32, String, String) {
    use std::os::unix::process::ExitStatusExt;
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (code, text(&output.stdout), text(&output.stderr))
}

/// A real library that changes nothing when preloaded: one that this test process has loaded itself.
fn harmless_library() -> &'static Path {
    static PATH: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PATH.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
        let mut path = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        let library = path.find(|p| p.contains("/libgcc_s.so") || p.contains("/libm.so"));
        PathBuf::from(library.expect("libgcc_s or libm is loaded"))
    })
}

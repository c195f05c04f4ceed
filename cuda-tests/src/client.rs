// SPDX-License-Identifier: Apache-2.0
//! A running client program, steered line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest a client may take for one answer. Generous: the machines that run this are small and shared; nothing is
/// timed by it, it only turns a hang into a failure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A process that answers one line per command line.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    errors: Receiver<String>,
}

impl Client {
    /// Starts `command` with its streams connected to us.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take();
        let answers = lines(child.stdout.take().expect("piped"));
        let errors = lines(child.stderr.take().expect("piped"));
        Self {
            child,
            input,
            answers,
            errors,
        }
    }

    /// Sends a command without waiting.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("input is open");
        // A client that died takes the pipe with it; its missing answer tells the story better than EPIPE.
        let _ = writeln!(input, "{line}").and_then(|()| input.flush());
    }

    /// Waits for the next answer line.
    ///
    /// # Panics
    /// When none comes within [`PATIENCE`] or the client ended.
    pub fn answer(&mut self) -> String {
        self.next_answer()
    }

    /// The next answer line if one is there already.
    pub fn try_answer(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// [`Client::answer`] for whoever holds it shared.
    ///
    /// # Panics
    /// When none comes within [`PATIENCE`] or the client ended.
    pub fn next_answer(&self) -> String {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("no answer ({error}); stderr: {}", self.stderr()),
        }
    }

    /// Sends a command and gives its answer.
    pub fn say(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// Says a command and demands an exact answer.
    ///
    /// # Panics
    /// When the answer differs.
    #[track_caller]
    pub fn expect(&mut self, line: &str, answer: &str) {
        let got = self.say(line);
        assert_eq!(got, answer, "`{line}`; stderr: {}", self.stderr());
    }

    /// `init` and a context on ordinal 0, both successful.
    #[track_caller]
    pub fn ready(&mut self) {
        self.expect("init 0", "init 0");
        self.expect("ctx 0", "ctx 0");
    }

    /// What the program may still allocate, in whole units of 512 bytes: what `cuMemGetInfo` says is free.
    ///
    /// # Panics
    /// When there is no context to ask in.
    #[track_caller]
    pub fn room(&mut self) -> u64 {
        let info = self.numbers("info");
        assert_eq!(info.first(), Some(&0), "cuMemGetInfo; stderr: {}", self.stderr());
        info[1] / 512 * 512
    }

    /// The numbers of an answer, the verb left out.
    pub fn numbers(&mut self, line: &str) -> Vec<u64> {
        self.say(line)
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    /// What it wrote to standard error until now.
    pub fn stderr(&self) -> String {
        self.errors.try_iter().collect::<Vec<_>>().join("\n")
    }

    /// Waits until standard error has a line with `text`, and answers it: the two streams arrive in their own time.
    ///
    /// # Panics
    /// When it has none within [`PATIENCE`] or the client ended without.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with `{text}` in standard error: {}", seen.join("\n"));
    }

    /// Process id (that of the program: `partage run` execs in place).
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|end| end.is_some())
    }

    /// Sends a signal; one that stops has stopped it when this returns.
    pub fn signal(&self, signal: i32) {
        if signal == libc::SIGSTOP {
            return partage_machine::process::stop(self.child.id());
        }
        // SAFETY: kill with the pid of our own unreaped child: it cannot be another process.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Ends the input and waits for the end.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    pub fn finish(mut self) -> ExitStatus {
        self.input = None;
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end; stderr: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it with SIGKILL and reaps it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

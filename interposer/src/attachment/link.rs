// SPDX-License-Identifier: Apache-2.0
//! Our end of the connection: its socket, and the files of both pages.

use core::ffi::c_int;

use crate::guest::descriptor::Kept;
use crate::socket::Refusal;

/// Our end of the connection. All-zero memory is "never connected".
pub struct Link {
    socket: Kept,
    /// A hello went out on the socket; its welcome is to come.
    is_greeting: bool,
    /// The last welcome was the first, and its pages could not be taken.
    lacks_room: bool,
    broker_file: Kept,
    client_file: Kept,
    /// The id under which brokers know this process; 0 before the first welcome.
    client: u64,
    /// It gave up the files and what is mapped of them.
    is_parked: bool,
}

impl Link {
    /// The connection, if there is one.
    pub fn socket(&self) -> &Kept {
        &self.socket
    }

    /// A hello is out, and not answered.
    pub fn is_greeting(&self) -> bool {
        self.is_greeting
    }

    /// This process had no descriptor or no memory left for the pages of a welcome. An attempt at once would
    /// have the broker make one more client each time.
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// A broker welcomed this process on a connection that stands.
    pub fn is_connected(&self) -> bool {
        !self.is_greeting && self.socket.fd().is_some()
    }

    /// The id under which brokers know this process; 0 before the first welcome.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// This process has nothing of a broker's.
    pub fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// It has nothing any more, or something again.
    pub fn set_parked(&mut self, is_parked: bool) {
        self.is_parked = is_parked;
    }

    /// The files of both pages, for a broker that does not know this process. `None`: the program closed one.
    pub fn files(&self) -> Option<[c_int; 2]> {
        Some([self.broker_file.fd()?, self.client_file.fd()?])
    }

    /// A connection on which `greet` says hello.
    ///
    /// # Errors
    /// What `greet` says, or that there is no place for one more descriptor of ours. The connection is gone then.
    pub fn connect(&mut self, fd: c_int, greet: impl FnOnce(&Kept) -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.lost();
        self.lacks_room = false;
        self.socket = Kept::take(fd).ok_or(Refusal::Unable)?;
        let result = greet(&self.socket);
        self.is_greeting = result.is_ok();
        if result.is_err() {
            self.lost();
        }
        result
    }

    /// The broker answered the hello: with a welcome or not.
    pub fn answered(&mut self) {
        self.is_greeting = false;
    }

    /// What came of a broker's welcome. Where it could not be taken the connection is lost.
    pub fn judged(&mut self, result: Result<(), Refusal>) {
        self.lacks_room = result == Err(Refusal::Unable);
        if result.is_err() {
            self.lost();
        }
    }

    /// Keeps the files of both pages: the broker's, and the client's.
    pub fn keep_files(&mut self, [broker, client]: [c_int; 2]) -> (&Kept, &Kept) {
        self.close_files();
        self.broker_file = Kept::take(broker).unwrap_or(Kept::NONE);
        self.client_file = Kept::take(client).unwrap_or(Kept::NONE);
        (&self.broker_file, &self.client_file)
    }

    /// Closes both files: the pages are not to be had.
    pub fn close_files(&mut self) {
        self.broker_file.close();
        self.client_file.close();
    }

    /// Brokers know this process under this id.
    pub fn set_client(&mut self, client: u64) {
        self.client = client;
    }

    /// What a forked child has to close.
    pub fn kept(&self) -> [Kept; 3] {
        [self.socket, self.broker_file, self.client_file]
    }

    /// The connection broke, or was not to be. The pages, and what was charged on them, stay what they are.
    pub fn lost(&mut self) {
        self.socket.close();
        self.is_greeting = false;
    }
}

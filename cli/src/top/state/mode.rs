// SPDX-License-Identifier: Apache-2.0
//! What is shown beside the table, and what a key asks for.

/// What is shown beside the table, and hears the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: keys are about the chosen job.
    #[default]
    Table,
    /// The list of keys.
    Help,
    /// A filter is typed.
    Filter(String),
    /// Settings of this job are typed.
    Settings(String, String),
    /// This is done once it is confirmed.
    Confirm(Ask),
    /// What `why` says.
    Said(Vec<String>),
}

/// What is asked of the broker, for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// `j42`.
    pub job: String,
    /// What.
    pub verb: Verb,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Explain it.
    Why,
    /// Change it: `mem=8GiB compute=30%`.
    Set(String),
    /// Take its memory off the GPU.
    Suspend,
    /// Bring it back.
    Resume,
    /// End it.
    Stop,
}

impl Ask {
    /// As it would be typed, without `partage`.
    pub fn words(&self) -> String {
        let job = &self.job;
        match &self.verb {
            Verb::Why => format!("why {job}"),
            Verb::Set(settings) => format!("set {job} {settings}"),
            Verb::Suspend => format!("suspend {job}"),
            Verb::Resume => format!("resume {job}"),
            Verb::Stop => format!("stop {job}"),
        }
    }
}

/// What is to be done for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A new frame.
    Draw,
    /// All of it again: somebody else wrote to the terminal.
    Redraw,
    /// The end.
    Leave,
    /// Ctrl-Z.
    Stop,
    /// A question to the broker.
    Ask(Ask),
}

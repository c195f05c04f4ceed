// SPDX-License-Identifier: Apache-2.0
//! Every kind of event, once: its word, what it tells, and which fields it may have beside its sentence.

/// One kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// As `events` shows it and `--kind` takes it.
    pub word: &'static str,
    /// What it tells, in a sentence.
    pub tells: &'static str,
    /// Fields that it may have, beside the job, the process, the user and the sentence.
    pub fields: &'static [&'static str],
}

const JOB: &[&str] = &["promise", "cap", "weight", "time_limit_ns", "devices"];
const DENIED: &[&str] = &[
    "gpu",
    "uuid",
    "asked_bytes",
    "limit_bytes",
    "used_bytes",
    "overhead_bytes",
    "denied",
];
const ENDED: &[&str] = &[
    "exit_code",
    "ran_ns",
    "denied",
    "promise",
    "cap",
    "weight",
    "time_limit_ns",
    "devices",
];
const WAITING: &[&str] = &["place", "promise", "cap", "weight", "time_limit_ns", "devices"];
const USED: &[&str] = &["gpu", "uuid", "used_bytes"];
const BUSY: &[&str] = &["gpu", "uuid", "busy"];
const NONE: &[&str] = &[];

macro_rules! kinds {
    ($($word:literal $fields:ident $tells:literal)+) => {
        /// Every kind, in the order of the alphabet.
        pub const EVENT_KINDS: &[EventKind] = &[
            $(EventKind { word: $word, tells: $tells, fields: $fields },)+
        ];
    };
}

kinds! {
    "adopted" NONE "A process of a job that an earlier broker left came back."
    "adoption-done" NONE "The wait for processes that an earlier broker left is over."
    "client-attached" NONE "A process of a job uses a GPU from now on."
    "client-died" NONE "A process that used a GPU is gone."
    "config-read" NONE "The configuration was read again and holds."
    "config-refused" NONE "The configuration was read again and is wrong: the one before holds."
    "denied" DENIED "An allocation was denied."
    "device-found" NONE "A GPU is there."
    "device-lost" NONE "A GPU does not answer any more."
    "drift" NONE "The driver shows other numbers of a job than Partage counts."
    "drift-killed" NONE "A process was killed for such numbers, as audit.drift says."
    "drift-over" NONE "The numbers agree again."
    "files-restored" NONE "A restore changed files of a job."
    "gpu-drained" NONE "A GPU takes no jobs any more."
    "gpu-sick" NONE "A GPU told a fault that does not go by itself: it takes no jobs."
    "gpu-undrained" NONE "A GPU takes jobs again."
    "gpu-well" NONE "A GPU that was sick takes jobs again."
    "helper-lost" NONE "The broker's helper for a job ended by itself."
    "job-admitted" JOB "A job starts."
    "job-ended" ENDED "A job has ended."
    "job-gone" NONE "A job that waited was given up."
    "job-idle" NONE "A job that did nothing leaves its GPU until its next call."
    "job-moved" NONE "A job runs on another GPU."
    "job-poisoned" NONE "A job cannot come back to its GPU, and stands."
    "job-preempted" NONE "A job leaves its GPU for another one."
    "job-refused" NONE "A job that waited can never start."
    "job-resumed" NONE "A job is back on its GPU."
    "job-saved" NONE "A snapshot of a job is whole."
    "job-stopping" NONE "A job was told to end."
    "job-stuck" NONE "A job stands between its GPU and host memory."
    "job-suspended" NONE "A job has left its GPU."
    "job-waiting" WAITING "A job waits for room."
    "kill-failed" NONE "A process that was to end could not be killed."
    "limit-changed" JOB "A job has another memory limit."
    "migrate-failed" NONE "A job stays on its GPU, or is suspended, instead of moving."
    "not-draining" NONE "Work of a job does not end in time: others do not wait for it."
    "notice" NONE "A job has to be told something."
    "renamed" NONE "A job has another name."
    "restore-failed" NONE "A job could not be brought back from its snapshot."
    "restored-behind" NONE "Another program brought a process of a job back to its GPU."
    "resume-failed" NONE "A job stays suspended."
    "save-failed" NONE "A snapshot of a job was not written."
    "signal-spared" NONE "A process of a job was not signalled: it is not the job's user's."
    "stale-pci" NONE "A process has another idea of its GPU's place than the broker."
    "strict-kill" NONE "A process was killed because its job is strict and it used a GPU without Partage."
    "suspend-failed" NONE "A job goes on instead of leaving its GPU."
    "terms-changed" JOB "A job has other terms of GPU time, priority or duration."
    "time-limit" JOB "A job has reached its time limit and ends."
    "time-limit-near" NONE "A job reaches its time limit soon."
    "unmanaged" USED "A process uses a GPU without Partage."
    "unmanaged-busy" BUSY "Such a process takes GPU time that cannot be shared out."
    "unmanaged-killed" NONE "Such a process was killed, as audit.unmanaged says."
    "unmanaged-spared" NONE "Such a process was not killed: it is another user's."
    "unsaid" NONE "So many more events of a kind were not said."
    "user-database-answers" NONE "The user database answers again."
    "user-database-silent" NONE "The user database does not answer."
    "wrong-device" NONE "A process sees another GPU than its job has, and was refused."
}

/// The kind of this word.
#[must_use]
pub fn event_kind(word: &str) -> Option<&'static EventKind> {
    EVENT_KINDS.iter().find(|kind| kind.word == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{EventDevice, EventNumbers};

    #[test]
    fn kinds_are_in_order_and_their_fields_are_an_events() {
        assert!(EVENT_KINDS.is_sorted_by(|one, next| one.word < next.word));
        let all = EventNumbers {
            gpu: Some(0),
            uuid: Some(String::new()),
            asked_bytes: Some(0),
            limit_bytes: Some(0),
            used_bytes: Some(0),
            overhead_bytes: Some(0),
            denied: Some(0),
            busy: Some(0.0),
            exit_code: Some(0),
            ran_ns: Some(0),
            time_limit_ns: Some(0),
            place: Some(0),
            promise: Some(0.0),
            cap: Some(0.0),
            weight: Some(0),
            devices: vec![EventDevice {
                gpu: None,
                uuid: String::new(),
                limit_bytes: None,
                request_bytes: 0,
                peak_bytes: None,
            }],
        };
        let document = serde_json::to_value(&all).expect("a document");
        let (names, fields) = (document.as_object().expect("fields"), all.fields());
        assert!(names.len() == fields.len() && fields.iter().all(|field| names.contains_key(*field)));
        for kind in EVENT_KINDS {
            assert!(kind.tells.ends_with('.'), "{}", kind.word);
            for field in kind.fields {
                assert!(fields.contains(field), "{}: {field}", kind.word);
            }
        }
    }
}

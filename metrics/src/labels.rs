// SPDX-License-Identifier: Apache-2.0
//! Labels of a job that name somebody or something. None is there unless it was asked for.

use partage_protocol::admin::JobView;

/// Hexadecimal digits of a container's id, where its runtime told no name.
const SHORT_ID: usize = 12;

/// A label that names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobLabel {
    /// The job's name.
    Name,
    /// Its owner.
    User,
    /// Its container.
    Container,
    /// Its pod's namespace.
    Namespace,
    /// Its pod.
    Pod,
    /// Its pod's uid.
    PodUid,
    /// The engine's own id of it: `slurm:4711`.
    Engine,
}

impl JobLabel {
    /// All, in the order in which they are written.
    pub const ALL: [Self; 7] = [
        Self::Name,
        Self::User,
        Self::Container,
        Self::Namespace,
        Self::Pod,
        Self::PodUid,
        Self::Engine,
    ];

    /// As it is called: as dcgm-exporter calls those that it has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::User => "user",
            Self::Container => "container",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::PodUid => "pod_uid",
            Self::Engine => "engine",
        }
    }

    /// The label that is called that.
    #[must_use]
    pub fn called(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|label| label.word() == word)
    }

    /// What the job has there; none where it has nothing.
    #[must_use]
    pub fn of(self, job: &JobView) -> Option<String> {
        // containerd's and CRI-O's annotations, which the hook takes over.
        let annotation = |keys: [&str; 2]| {
            let found = job.labels.iter().find(|(key, _)| keys.contains(&key.as_str()));
            found.map(|(_, value)| value.clone())
        };
        let text = match self {
            Self::Name => job.name.clone(),
            Self::User => Some(job.user.clone()),
            Self::Container => {
                let container = job.container.as_ref();
                let id = |id: &str| id.get(..SHORT_ID).unwrap_or(id).to_owned();
                container.map(|one| one.name.clone().unwrap_or_else(|| id(&one.id)))
            }
            Self::Namespace => annotation(["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]),
            Self::Pod => annotation(["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]),
            Self::PodUid => annotation(["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"]),
            Self::Engine => job.engine.as_ref().map(|engine| engine.id.clone()),
        };
        text.filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_is_found_by_its_word() {
        for label in JobLabel::ALL {
            assert_eq!(JobLabel::called(label.word()), Some(label));
        }
        assert_eq!(JobLabel::called("pid"), None);
    }
}

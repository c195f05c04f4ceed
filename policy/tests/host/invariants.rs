// SPDX-License-Identifier: Apache-2.0
//! What holds on the host after every step: the policy's own invariants, and what users were promised.

use partage_protocol::admin::{JobView, Reply};
use partage_protocol::terms::ppm;

use super::{Host, broker_view, caller};

impl Host {
    /// What holds for every device after every step.
    pub fn check(&self) {
        assert_eq!(self.policy.check(&self.board), []);
        let views = self.policy.status(broker_view(), self.now_ns, &self.board).devices;
        let Reply::Ps { jobs, .. } = self.policy.ps(&caller(0), false, &self.board) else {
            panic!("ps")
        };
        let back = jobs.iter().find(|job| self.forgotten.contains(&job.job));
        assert!(back.is_none(), "it had ended: {back:#?}");
        for view in &views {
            let is_kept = |job: &&JobView| !matches!(job.state.as_str(), "suspended" | "poisoned");
            let places = jobs
                .iter()
                .filter(is_kept)
                .flat_map(|job| &job.devices)
                .filter(|device| device.uuid == view.uuid);
            let time = jobs
                .iter()
                .filter(is_kept)
                .filter(|job| job.devices.iter().any(|device| device.uuid == view.uuid));
            let time: u64 = time.map(|job| u64::from(ppm(job.terms.promise))).sum();
            assert!(
                time as f64 <= self.promisable_time * 1e6,
                "{time} millionths of the time are promised: {jobs:#?}"
            );
            assert_eq!((view.promised_time * 1e6).round() as u64, time);
            let (mut promised, mut held) = (0, 0);
            for place in places {
                promised += place.request_bytes;
                held += place.request_bytes.max(place.granted_bytes);
                assert!(place.limit_bytes.is_none_or(|limit| place.request_bytes <= limit));
            }
            if self.is_overcommitted {
                continue;
            }
            assert!(
                promised <= view.usable_bytes,
                "{promised} promised of {}",
                view.usable_bytes
            );
            if promised > 0 && !self.is_excused {
                let all = held + view.unmanaged_bytes;
                assert!(
                    all <= view.usable_bytes,
                    "{all} held of {}: {jobs:#?}",
                    view.usable_bytes
                );
            }
        }
    }
}

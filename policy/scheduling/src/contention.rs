// SPDX-License-Identifier: Apache-2.0
//! What every member of a device has to reckon with, found once for all of them: a device may have a thousand members,
//! and each decision about one must not ask all the others.

use partage_protocol::terms::Class;
use partage_protocol::units::JobId;

use crate::config::Config;
use crate::device::Device;
use crate::job_on_device::JobOnDevice;

/// The other members of a device, in short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    /// Several jobs are there.
    pub is_shared: bool,
    /// Several jobs wanted the device of late: then the work in flight is bounded tightly.
    pub is_contended: bool,
    /// Who among those that want the device and have a claim is owed most.
    pub owed: Option<JobId>,
    /// The highest class that is there.
    top: Option<Class>,
    /// The most urgent job that wants the device, or is in a short pause, and is not ahead of its share by the slack:
    /// its request is not cut short for a fraction of a millisecond.
    pressing: Option<(Class, JobId)>,
    /// In how long a sleeping job of each class may want the device again, from the highest class down.
    due_in_ns: [Option<u64>; CLASSES.len()],
}

const CLASSES: [Class; 4] = [Class::Realtime, Class::High, Class::Normal, Class::Low];

impl Contention {
    pub fn of(device: &Device, config: &Config, now: u64) -> Self {
        let mut contention = Self {
            is_shared: device.present().nth(1).is_some(),
            is_contended: false,
            owed: None,
            top: None,
            pressing: None,
            due_in_ns: [None; CLASSES.len()],
        };
        let (mut recent, mut most) = (0, 0);
        for (job, member) in device.present() {
            let class = member.terms.class;
            recent += usize::from(member.wanted_within(config.hysteresis_ns, now));
            contention.top = contention.top.max(Some(class));
            if !member.has_claim() {
                continue;
            }
            let lag = device.eevdf.lag(job);
            if member.is_candidate() && lag > 0 && lag >= most {
                (most, contention.owed) = (lag, Some(job));
            }
            if member.is_pressing(config, now) && contention.pressing.is_none_or(|(top, _)| class >= top) {
                contention.pressing = Some((class, job));
            }
            contention.expect(member, config, now);
        }
        contention.is_contended = recent >= 2;
        contention
    }

    fn expect(&mut self, member: &JobOnDevice, config: &Config, now: u64) {
        let due = CLASSES.iter().position(|class| *class == member.terms.class);
        let Some(due) = due.and_then(|at| self.due_in_ns.get_mut(at)) else {
            return;
        };
        if let Some(in_ns) = member.due_in_ns(now, config) {
            *due = Some(due.map_or(in_ns, |other| other.min(in_ns)));
        }
    }

    /// Whether a job of a higher class has a client on the device.
    pub fn is_beside_higher(&self, class: Class) -> bool {
        self.top > Some(class)
    }

    /// The job of a higher class that keeps this one away.
    pub fn outranked_by(&self, class: Class) -> Option<JobId> {
        self.pressing.filter(|(top, _)| *top > class).map(|(_, job)| job)
    }

    /// Whether a job of a higher class is likely to want the device within `lead_ns` from now.
    pub fn expects_higher(&self, class: Class, lead_ns: u64) -> bool {
        let higher = CLASSES
            .iter()
            .zip(self.due_in_ns)
            .take_while(|(other, _)| **other > class);
        higher.into_iter().any(|(_, due)| due.is_some_and(|due| due <= lead_ns))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Devices that are being emptied or are sick: nothing is admitted there, and each job goes where there is room.
//!
//! The mark is the broker's, which keeps it on disk; here is what it means. A job is moved by the same steps as for
//! `migrate`, one after the other, because each takes room from the next.

use partage_protocol::units::DeviceUuid;

use super::Policy;
use crate::action::Action;
use crate::drain_mark::DrainMark;
use crate::notice::Notice;
use crate::sick::{HealthNews, Sickness};

impl Policy {
    /// Drains a device, or ends that. Of one that is drained already the first mark stays.
    pub(crate) fn drain(&mut self, device: DeviceUuid, mark: Option<DrainMark>) {
        let gpu = self.gpu(device);
        let (is_news, kind, what) = match mark {
            Some(mark) => {
                let (is_news, by) = (!self.is_drained(device), mark.uid);
                self.books.drained.entry(device).or_insert(mark);
                (is_news, "gpu-drained", Notice::Drained(gpu, by))
            }
            None => {
                let is_news = self.books.drained.remove(&device).is_some();
                (is_news, "gpu-undrained", Notice::Undrained(gpu))
            }
        };
        if is_news {
            self.publish(kind, None, None, what);
        }
    }

    /// The driver told of errors of a device.
    pub(crate) fn hear_xids(&mut self, device: DeviceUuid, xids: &[u32], now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        for xid in xids {
            if let Some(cause) = self.books.health.entry(device).or_default().hear(*xid, unix_ns) {
                self.say_sick(device, cause);
            }
        }
    }

    /// The driver says whether a bad row of a device's memory could not be replaced.
    pub(crate) fn note_remapping(&mut self, device: DeviceUuid, has_failed: Option<bool>, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let is_known = self.books.health.contains_key(&device);
        if !is_known && has_failed.is_none() {
            return;
        }
        match self
            .books
            .health
            .entry(device)
            .or_default()
            .see_remapping(has_failed, unix_ns)
        {
            Some(HealthNews::Sick(cause)) => self.say_sick(device, cause),
            Some(HealthNews::Well) => self.say_well(device, None),
            None => {}
        }
    }

    /// A device is well again, by this user's word.
    pub(crate) fn heal(&mut self, device: DeviceUuid, uid: Option<u32>) {
        let health = self.books.health.get_mut(&device);
        if health.is_some_and(|health| health.mark.take().is_some()) {
            self.say_well(device, uid);
        }
    }

    fn say_sick(&mut self, device: DeviceUuid, cause: Sickness) {
        let what = Notice::Sick(self.gpu(device), cause.text());
        self.act(Action::Health(device));
        self.publish("gpu-sick", None, None, what);
    }

    fn say_well(&mut self, device: DeviceUuid, uid: Option<u32>) {
        let what = Notice::Well(self.gpu(device), uid);
        self.act(Action::Health(device));
        self.publish("gpu-well", None, None, what);
    }
}

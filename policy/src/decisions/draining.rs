// SPDX-License-Identifier: Apache-2.0
//! Devices that are being emptied: nothing is admitted there, and each job goes where there is room.
//!
//! The mark is the broker's, which keeps it on disk; here is what it means. A job is moved by the same steps as for
//! `migrate`, one after the other, because each takes room from the next.

use partage_protocol::units::DeviceUuid;

use super::Policy;
use crate::drain_mark::DrainMark;
use crate::notice::Notice;

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
}

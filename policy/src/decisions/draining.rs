// SPDX-License-Identifier: Apache-2.0
//! Devices that are being emptied or are sick: nothing is admitted there, and each job goes where there is room.
//!
//! The mark is the broker's, which keeps it on disk; here is what it means. A job is moved by the same steps as for
//! `migrate`, one after the other, because each takes room from the next.

use partage_protocol::units::DeviceUuid;

use super::Policy;
use crate::action::Action;
use crate::notice::Notice;
use crate::sick::{DeviceNews, HealthNews};

impl Policy {
    /// Something is new about a device as a whole. Of one that is drained already the first mark stays.
    pub(crate) fn hear_of_device(&mut self, device: DeviceUuid, news: DeviceNews<'_>, now_ns: u64) {
        let (gpu, unix_ns) = (self.gpu(device), self.unix_ns(now_ns));
        let (books, by) = (&mut self.books, news.by());
        let (kind, what) = match news {
            DeviceNews::Drained(mark) if !books.drained.contains_key(&device) => {
                books.drained.insert(device, mark);
                ("gpu-drained", Notice::Drained(gpu, by))
            }
            DeviceNews::Undrained if books.drained.remove(&device).is_some() => {
                ("gpu-undrained", Notice::Undrained(gpu))
            }
            DeviceNews::Drained(_) | DeviceNews::Undrained => return,
            of_health => {
                let Some(health) = books.health.entry(device).or_default().hear_of(&of_health, unix_ns) else {
                    return;
                };
                self.act(Action::Health(device));
                match health {
                    HealthNews::Sick(cause) => ("gpu-sick", Notice::Sick(gpu, cause.text())),
                    HealthNews::Well => ("gpu-well", Notice::Well(gpu, by)),
                }
            }
        };
        self.publish(kind, None, None, what);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The totals that hold for a user, or that live jobs share, and what is used of each.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::admin::{TotalUnit, TotalView};
use partage_protocol::units::DeviceUuid;

use crate::books::Books;
use crate::device::{Device, DeviceAccount};
use crate::machine::Machine;
use crate::rules::{Facts, Sharing, TotalId, Written};

impl Books {
    /// The totals that a user with these facts shares, and those of the user's live jobs, in the order of the file; of
    /// memory and time one for each GPU that the driver shows.
    #[must_use]
    pub fn totals_view<M: Machine>(&self, facts: &Facts, machine: &M) -> Vec<TotalView> {
        let rules = self.rules();
        let mut ids: BTreeSet<TotalId> = rules.totals_of(facts).into_iter().collect();
        let own = self.jobs.values().filter(|job| job.record.facts().uid == facts.uid);
        ids.extend(own.flat_map(|job| job.totals.iter().cloned()));
        let shared = ids.iter().filter_map(|id| Some((id, rules.sharing(id)?)));
        let accounts = self.accounts(machine);
        shared
            .flat_map(|(id, sharing)| self.views_of(id, &sharing, &accounts))
            .collect()
    }

    /// The totals that live jobs share, in the order of the file, with the user of those that each user has.
    pub(crate) fn live_totals<M: Machine>(&self, machine: &M) -> Vec<TotalView> {
        let live = self.jobs.values().filter(|job| !job.state().is_over());
        let whose: BTreeMap<&TotalId, &str> = live
            .flat_map(|job| job.totals.iter().map(|id| (id, job.record.user.as_str())))
            .collect();
        let accounts = self.accounts(machine);
        let mut views = Vec::new();
        for (id, user) in whose {
            let Some(sharing) = self.rules().sharing(id) else {
                continue;
            };
            let user = (!id.is_everybodys()).then(|| user.to_owned());
            let of_id = self.views_of(id, &sharing, &accounts).into_iter();
            views.extend(of_id.map(|view| TotalView {
                user: user.clone(),
                ..view
            }));
        }
        views
    }

    fn accounts<M: Machine>(&self, machine: &M) -> BTreeMap<DeviceUuid, DeviceAccount> {
        let account = |uuid: &DeviceUuid| Some((*uuid, self.account(*uuid, machine)?));
        self.devices.keys().filter_map(account).collect()
    }

    fn views_of(
        &self,
        id: &TotalId,
        sharing: &Sharing<'_>,
        accounts: &BTreeMap<DeviceUuid, DeviceAccount>,
    ) -> Vec<TotalView> {
        let mut views = Vec::new();
        for device in self.devices.values() {
            let uuid = device.seen.uuid;
            if let Some((mem, account)) = sharing.mem.zip(accounts.get(&uuid)) {
                let bound = self.bound(id, sharing, account);
                let holds = bound.iter().flat_map(|bound| &bound.account.holds);
                let (used, held) = holds.fold((0_u64, 0_u64), |(used, held), hold| {
                    (used.saturating_add(hold.used), held.saturating_add(hold.committed()))
                });
                let limit = mem.value.on(account.usable);
                let total = view(sharing, ("mem", mem), (TotalUnit::Bytes, limit, used), Some(device));
                views.push(TotalView { held, ..total });
            }
            if let Some(compute) = sharing.compute_promise {
                let numbers = (
                    TotalUnit::Millionths,
                    u64::from(compute.value),
                    self.promised(id, uuid, None),
                );
                views.push(view(sharing, ("compute", compute), numbers, Some(device)));
            }
        }
        if let Some(gpus) = sharing.gpus {
            let places = self.running(id).flat_map(|job| &job.record.devices);
            let held: BTreeSet<DeviceUuid> = places.map(|place| place.device).collect();
            let numbers = (TotalUnit::Count, gpus.value as u64, held.len() as u64);
            views.push(view(sharing, ("gpus", gpus), numbers, None));
        }
        if let Some(jobs) = sharing.jobs {
            let numbers = (TotalUnit::Count, jobs.value as u64, self.running(id).count() as u64);
            views.push(view(sharing, ("jobs", jobs), numbers, None));
        }
        views
    }
}

fn view<T>(
    sharing: &Sharing<'_>,
    (key, written): (&str, &Written<T>),
    (unit, limit, used): (TotalUnit, u64, u64),
    device: Option<&Device>,
) -> TotalView {
    let (rule, of) = sharing.origin();
    TotalView {
        rule: rule.to_owned(),
        file: written.at.file.clone(),
        line: written.at.line as u64,
        key: format!("{of}.{key}"),
        text: written.text.clone(),
        device: device.map(|device| device.seen.uuid.to_string()),
        index: device.map(|device| device.seen.index),
        user: None,
        unit,
        limit,
        used,
        held: used,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The totals that hold for a user, and what is used of each.

use std::collections::BTreeSet;

use partage_protocol::admin::{TotalUnit, TotalView};
use partage_protocol::units::DeviceUuid;

use crate::decisions::Policy;
use crate::device::Device;
use crate::machine::Machine;
use crate::rules::{Facts, Sharing, Written};

impl Policy {
    /// The totals that a user with these facts shares, and those of the user's live jobs, in the order of the file; of
    /// memory and time one for each GPU that the driver shows.
    #[must_use]
    pub fn totals_view<M: Machine>(&self, facts: &Facts, machine: &M) -> Vec<TotalView> {
        let rules = self.rules();
        let jobs = self.jobs().values().map(|job| job.record.facts());
        let all: Vec<Facts> = std::iter::once(facts.clone())
            .chain(jobs.filter(|job| job.uid == facts.uid))
            .collect();
        let mut totals: Vec<(usize, TotalView)> = Vec::new();
        for sharing in all.iter().flat_map(|facts| rules.sharings(facts)) {
            let (name, _) = sharing.origin();
            let place = rules
                .rules
                .iter()
                .position(|rule| rule.name == name)
                .unwrap_or(usize::MAX);
            for total in self.totals_of(&sharing, machine) {
                if !totals.iter().any(|(_, other)| *other == total) {
                    totals.push((place, total));
                }
            }
        }
        // Another job's facts may bring a rule that stands before one that is there already.
        totals.sort_by_key(|(place, _)| *place);
        totals.into_iter().map(|(_, total)| total).collect()
    }

    fn totals_of<M: Machine>(&self, sharing: &Sharing<'_>, machine: &M) -> Vec<TotalView> {
        let total = sharing.total;
        let mut views = Vec::new();
        for device in self.devices().values() {
            let uuid = device.seen.uuid;
            if let Some((mem, account)) = total.mem.as_ref().zip(self.account(uuid, machine)) {
                let bound = self.bound(sharing, account.usable, &account);
                let holds = bound.iter().flat_map(|bound| &bound.account.holds);
                let (used, held) = holds.fold((0_u64, 0_u64), |(used, held), hold| {
                    (used.saturating_add(hold.used), held.saturating_add(hold.committed()))
                });
                let limit = mem.value.on(account.usable);
                let total = view(sharing, ("mem", mem), (TotalUnit::Bytes, limit, used), Some(device));
                views.push(TotalView { held, ..total });
            }
            if let Some(compute) = &total.compute_promise {
                let numbers = (
                    TotalUnit::Millionths,
                    u64::from(compute.value),
                    self.promised(sharing, uuid),
                );
                views.push(view(sharing, ("compute", compute), numbers, Some(device)));
            }
        }
        if let Some(gpus) = &total.gpus {
            let places = self.running(sharing).flat_map(|job| &job.record.devices);
            let held: BTreeSet<DeviceUuid> = places.map(|place| place.device).collect();
            let numbers = (TotalUnit::Count, gpus.value as u64, held.len() as u64);
            views.push(view(sharing, ("gpus", gpus), numbers, None));
        }
        if let Some(jobs) = &total.jobs {
            let numbers = (
                TotalUnit::Count,
                jobs.value as u64,
                self.running(sharing).count() as u64,
            );
            views.push(view(sharing, ("jobs", jobs), numbers, None));
        }
        views
    }

    /// Millionths of a device's time that are promised to sharers.
    fn promised(&self, sharing: &Sharing<'_>, device: DeviceUuid) -> u64 {
        let of_sharers = self.time_promises(device).filter(|(job, _)| self.shares(job, sharing));
        of_sharers.map(|(_, ppm)| u64::from(ppm)).sum()
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
        unit,
        limit,
        used,
        held: used,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Messages from attached clients, and the answers.

use partage_policy::Event;
use partage_protocol::message::{
    Ask, Devices, MAX_DEVICES, Measure, NOTICE_PARKED, Notice, REFUSED_DEVICES, ToBroker, Usage, Welcome,
};
use partage_protocol::page::DeviceInfo;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use zerocopy::IntoBytes;

use super::state_driver::StateDriver;
use crate::peer::ConnectionId;

impl StateDriver {
    /// A packet of an attached client.
    ///
    /// # Errors
    /// What the client did wrong.
    pub(super) fn hear(&mut self, connection: ConnectionId, message: ToBroker) -> Result<(), &'static str> {
        if self.held.iter().any(|hold| hold.connection() == connection) {
            return Err("spoke before it was welcomed");
        }
        let id = self.site.clients.of_connection(connection).ok_or("no client")?;
        let client = self.site.clients.get(id).ok_or("no client")?;
        match message {
            ToBroker::Hello(_) => return Err("a second hello"),
            ToBroker::Devices(devices) => {
                let count = (devices.count as usize).min(devices.uuids.len());
                // A device that the driver did not name is no device.
                let seen = devices.uuids[..count].iter().filter(|uuid| **uuid != [0; 16]);
                let is_own = |uuid: &&[u8; 16]| client.devices.iter().any(|known| known.bytes == **uuid);
                let (own, other): (Vec<&[u8; 16]>, Vec<&[u8; 16]>) = seen.partition(is_own);
                let (other, has_own) = (other.first().map(|uuid| **uuid), !own.is_empty());
                if let Some(client) = self.site.clients.get_mut(id) {
                    client.has_driver = true;
                }
                self.find_stale_pci(id, &devices);
                if let Some(uuid) = other {
                    self.wrong_device(id, uuid, has_own);
                }
            }
            ToBroker::Ask(Ask {
                header,
                slot,
                wanted,
                request,
                ..
            }) => {
                let event = Event::Ask {
                    client: id,
                    slot: slot as usize,
                    wanted,
                    request,
                    sequence: header.sequence,
                };
                self.site.tell(event);
            }
            ToBroker::Measure(Measure { header, slot, stage }) => {
                let event = Event::Measure {
                    client: id,
                    slot: slot as usize,
                    stage,
                    sequence: header.sequence,
                };
                self.site.tell(event);
            }
            ToBroker::Usage(Usage { header, slot, .. }) => {
                let event = Event::Usage {
                    client: id,
                    slot: slot as usize,
                    sequence: header.sequence,
                };
                self.site.tell(event);
            }
            ToBroker::Notice(notice) if notice.what == NOTICE_PARKED => self.site.clients.note_parked(id),
            ToBroker::Notice(Notice { what, slot, value, .. }) => {
                let slot = slot as usize;
                let event = Event::Notice {
                    client: id,
                    what,
                    slot,
                    value,
                };
                self.site.tell(event);
            }
        }
        Ok(())
    }

    /// After a move a driver may go on telling the PCI address of the device before (NVIDIA/cuda-checkpoint issue 48).
    fn find_stale_pci(&mut self, id: ClientId, devices: &Devices) {
        let Some(client) = self.site.clients.get(id) else {
            return;
        };
        let (job, pid) = (client.job, client.process.pid);
        let mut found = Vec::new();
        for (uuid, pci) in devices.uuids.iter().zip(&devices.pci).take(devices.count as usize) {
            let end = pci.iter().position(|byte| *byte == 0).unwrap_or(pci.len());
            let told = String::from_utf8_lossy(&pci[..end]).into_owned();
            let device = DeviceUuid {
                bytes: *uuid,
                is_mig: false,
            };
            let known = self.site.devices.list().get(&device);
            if let Some(facts) = known.filter(|facts| !told.is_empty() && !facts.is_at(&told)) {
                let (index, address) = (facts.index, &facts.pci);
                found.push(format!(
                    "the driver tells pid {pid} the PCI address {told} of GPU {index}, whose address is {address}: \
                     what it looks up by that address (NCCL, NVML) is another GPU, until the process starts again"
                ));
            }
        }
        for text in found {
            self.site.publish("stale-pci", Some(job), Some(pid), text);
        }
    }

    /// The program sees a device that the broker did not give: another machine's driver (a simulated one and a real
    /// broker, or the other way round), or a mask that does not mask. Where it sees the job's too, the library keeps it
    /// off the others.
    fn wrong_device(&mut self, id: ClientId, uuid: [u8; 16], has_own: bool) {
        let Some(client) = self.site.clients.get(id) else {
            return;
        };
        let seen = DeviceUuid {
            bytes: uuid,
            is_mig: false,
        };
        let given: Vec<String> = client.devices.iter().map(ToString::to_string).collect();
        let text = format!(
            "process {} sees device {seen}, but its job was given {}",
            client.process.pid,
            if given.is_empty() {
                "none".to_owned()
            } else {
                given.join(", ")
            }
        );
        let (job, pid, connection) = (client.job, client.process.pid, client.connection);
        self.site.publish("wrong-device", Some(job), Some(pid), text.clone());
        if let Some(connection) = connection.filter(|_| !has_own) {
            self.site.refuse(connection, REFUSED_DEVICES, &text);
        }
    }

    /// A connection closed, by either side.
    pub(super) fn lose(&mut self, connection: ConnectionId) {
        self.held.retain(|hold| hold.connection() != connection);
        if self.site.tickets.remove(&connection) {
            self.site.tell(Event::TicketGone(partage_policy::Ticket(connection.0)));
        }
        if let Some(id) = self.site.clients.of_connection(connection) {
            self.site.clients.connect(id, None);
            self.client_lost_connection(id);
        }
    }

    pub(super) fn welcome(&mut self, id: ClientId, job: JobId, flags: u32, devices: &[DeviceInfo]) {
        let uuids = self.site.jobs.devices(job);
        let Some(client) = self.site.clients.get_mut(id) else {
            return;
        };
        client.job = job;
        client.devices = uuids;
        let (line, gift) = (client.line, client.gift.take());
        self.engine.show_hold(&mut self.site, id);
        self.site.join_dispatcher(id);
        self.site.clients.ledger.set_job(line, job);
        if let Some(pages) = self.site.clients.pages(id) {
            pages.broker().show_devices(devices);
        }
        let welcome = Welcome {
            header: Welcome::header(0),
            client: id.0,
            job: job.0,
            device_count: devices.len().min(MAX_DEVICES) as u32,
            flags,
        };
        let descriptors = gift.map(Vec::from).unwrap_or_default();
        self.site.send(id, welcome.as_bytes().to_vec(), descriptors);
    }

    pub(super) fn refuse_client(&mut self, id: ClientId, code: u32, text: &str) {
        if let Some(connection) = self.site.clients.get(id).and_then(|client| client.connection) {
            self.site.refuse(connection, code, text);
        }
        self.forget_client(id);
    }
}

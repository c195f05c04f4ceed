// SPDX-License-Identifier: Apache-2.0
//! The binary messages between a client (the interposer in a program) and the broker.
//!
//! Every message is one SEQPACKET packet: a [`Header`] and a fixed body, little-endian by the machines we run on
//! (x86-64, aarch64). A packet that is too short, too long, of another major or of an unknown kind is an error value,
//! never a guess: the broker closes that connection, and a client treats it as "no broker". Fields are only ever added
//! at a body's end together with a higher minor; the decoder accepts longer bodies of a known kind and ignores the
//! tail.
//!
//! Terms: *slot*, a device's position in the job's own order (what the program sees as ordinal when it masks nothing).

use core::ffi::CStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First four bytes of every binary packet (`PTGM` in memory order).
pub const MAGIC: u32 = u32::from_le_bytes(*b"PTGM");
/// Protocol major: both sides must agree.
pub const MAJOR: u16 = 7;
/// Protocol minor: the lower of the two sides' is spoken.
pub const MINOR: u16 = 0;
/// Most devices one job can hold; 16 is what the largest single-node systems carry.
pub const MAX_DEVICES: usize = 16;
/// Largest packet either side sends, in bytes, JSON packets included.
pub const MAX_PACKET: usize = 32 * 1024;
/// Length of a job token, in bytes, as carried in messages (environment: 64 hexadecimal digits).
pub const TOKEN_BYTES: usize = 32;

/// Start of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`MAJOR`] of the sender.
    pub major: u16,
    /// [`MINOR`] of the sender.
    pub minor: u16,
    /// Which message follows: the `KIND` of its type.
    pub kind: u16,
    /// Bytes of the whole packet, this header included.
    pub length: u16,
    /// Chosen by the asker; an answer repeats it.
    pub sequence: u32,
}

/// Stands for the index of a device that the broker does not know, or not any more. Never shown: people are told its
/// UUID, and documents hold null.
pub const NO_INDEX: u32 = u32::MAX;

/// Client to broker, first packet of a connection. On a reconnect two descriptors travel with it: the client's
/// duplicates of the broker's page and of its own page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    /// Kind [`Hello::KIND`].
    pub header: Header,
    /// Token of the job from the environment; zeros without one.
    pub token: [u8; TOKEN_BYTES],
    /// Zero for a new client, else the id that an earlier broker gave.
    pub client: u64,
    /// The limit that the environment carries (`PARTAGE_MEM` resolved by `run`), 0 without one. It can only lower.
    pub environment_limit: u64,
    /// The process's pid as it sees itself (pid namespaces differ; the kernel's credentials decide).
    pub pid: u32,
    /// `HELLO_*` bits.
    pub flags: u32,
    /// Bytes used in `environment`.
    pub environment_length: u32,
    /// The GPUs that the process may open: bit N for the node `/dev/nvidiaN`. 0: it cannot tell.
    pub nodes: u32,
    /// For a process that was put into no job: the variables of other tools that limit it and `CUDA_VISIBLE_DEVICES`,
    /// packed as [`aliases::entries`](crate::aliases::entries) reads them. `environment_limit` is the lowest of them.
    pub environment: [u8; ENVIRONMENT_BYTES],
}

/// Room for variables in a [`Hello`]: sixteen devices by their UUIDs twice over.
pub const ENVIRONMENT_BYTES: usize = 2048;

/// This process has met NVML only; it asks for the job's devices, not for memory. The broker treats it as any other:
/// it may go on to CUDA without another hello, and must have its share then.
pub const HELLO_NVML_ONLY: u32 = 1;
/// The program closed the page descriptors: the client keeps its last grant and cannot grow.
pub const HELLO_PAGES_LOST: u32 = 2;
/// The variables did not fit `environment`.
pub const HELLO_ENVIRONMENT_CUT: u32 = 4;

/// This process gave its pages up ([`Park`]) and wants new ones: perhaps it was restored since, and is another process.
pub const HELLO_PARKED: u32 = 8;

/// Broker to client: attached. Two descriptors travel with it on a new attach, and to a parked client: the broker's
/// page (opened read-only) and the client's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Welcome {
    /// Kind [`Welcome::KIND`].
    pub header: Header,
    /// This client's id, unique for the life of the ledger.
    pub client: u64,
    /// The job's number (`j42` is 42).
    pub job: u64,
    /// The job's devices, at most [`MAX_DEVICES`]; the broker's page says which.
    pub device_count: u32,
    /// `WELCOME_*` bits.
    pub flags: u32,
}

/// The process belongs to no job of `run`; it got the default class of its login scope or container.
pub const WELCOME_DEFAULT_JOB: u32 = 1;
/// The broker is private (per user): a client that loses it may start the next one.
pub const WELCOME_PRIVATE_BROKER: u32 = 2;
/// The job was started with `--strict`.
pub const WELCOME_STRICT: u32 = 4;
/// From this bit of the flags on: which of the job's devices the process may open, bit N for slot N. All zero: each.
pub const WELCOME_OPEN_SHIFT: u32 = 16;

/// Broker to client: not attached, or a request that cannot be served; the reason is text for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Refused {
    /// Kind [`Refused::KIND`].
    pub header: Header,
    /// One of `REFUSED_*`.
    pub code: u32,
    /// Bytes used in `text`.
    pub text_length: u32,
    /// UTF-8 reason, one sentence.
    pub text: [u8; 240],
}

/// Other protocol major.
pub const REFUSED_VERSION: u32 = 1;
/// Token or credentials belong to no job this process may join.
pub const REFUSED_IDENTITY: u32 = 2;
/// The devices the client sees are not the ones the broker gave.
pub const REFUSED_DEVICES: u32 = 3;
/// Too many clients or connections.
pub const REFUSED_CAPACITY: u32 = 4;
/// The process is one of the broker's own: no client, and under no limit.
pub const REFUSED_OWN: u32 = 5;

/// Longest PCI address in a [`Devices`], its end included (`0000:17:00.0`).
pub const PCI_BYTES: usize = 16;

/// Client to broker after the driver's own initialisation, and after a move: the devices that the program sees, in its
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Devices {
    /// Kind [`Devices::KIND`].
    pub header: Header,
    /// Devices in use in `uuids`.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// UUIDs in the program's order.
    pub uuids: [[u8; 16]; MAX_DEVICES],
    /// The PCI addresses that the driver tells of them (`cuDeviceGetPCIBusId`, ended by a zero); zeros: not known.
    pub pci: [[u8; PCI_BYTES]; MAX_DEVICES],
}

/// Client to broker: raise my grant on a slot so that `used` can become `wanted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ask {
    /// Kind [`Ask::KIND`].
    pub header: Header,
    /// The device's slot.
    pub slot: u32,
    /// Zero.
    pub reserved: u32,
    /// Use after the allocation, in bytes: what the grant must reach at least.
    pub wanted: u64,
    /// Bytes of the allocation itself, for the explanation of a denial.
    pub request: u64,
}

/// Broker to client: the answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// Kind [`Answer::KIND`]; repeats the sequence of the [`Ask`].
    pub header: Header,
    /// One of `VERDICT_*`.
    pub verdict: u32,
    /// The device's slot.
    pub slot: u32,
    /// The grant that is now in the broker's page.
    pub granted: u64,
    /// The job's limit on the device.
    pub limit: u64,
    /// What the job uses on the device.
    pub job_used: u64,
    /// What is physically free on the device, `u64::MAX` when unknown.
    pub physical_free: u64,
}

/// Broker to client: let go of everything that you have of a broker's, the connection last, and come back once the file
/// that [`PARKING_NAME`] names is gone from the folder of the clients' socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Park {
    /// Kind [`Park::KIND`].
    pub header: Header,
    /// The number in the file's name: the job's.
    pub job: u64,
}

/// The file's name without the number behind it: while it is there, parked clients of that job stay parked. They look
/// for it instead of asking, because a process that is dumped may have no connection at that moment.
pub const PARKING_NAME: &str = "parked-j";

/// What the first process of the namespaces of `partage restore` calls itself, in the 15 bytes that a kernel keeps.
pub const RESTORE_NAME: &CStr = c"partage-restore";

/// The grant reached `wanted` and is pinned until the client counts it as settled (bounded by `PIN_NS`).
pub const VERDICT_GRANTED: u32 = 0;
/// The job's limit does not allow it.
pub const VERDICT_LIMIT: u32 = 1;
/// The device has no room: promises to others or others' use take the rest.
pub const VERDICT_CARD_FULL: u32 = 2;
/// A sibling's use moved while the broker looked, so nothing is decided: try the allocation again.
pub const VERDICT_RETRY: u32 = 3;
/// No such slot, or a request that contradicts the ledger; counted as a defect of the client.
pub const VERDICT_INVALID: u32 = 4;
/// The limit of the asking process does not allow it, whatever the job's does.
pub const VERDICT_PROCESS_LIMIT: u32 = 5;
/// There would be room but for the memory of a process that has ended, which the driver has not freed for so long that
/// nobody waits for it any more. `physical_free` is that process's pid.
pub const VERDICT_UNFREED: u32 = 6;

/// Client to broker: what does the whole job use on a slot?
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Usage {
    /// Kind [`Usage::KIND`]; answered by an [`Answer`] whose verdict is `VERDICT_GRANTED`.
    pub header: Header,
    /// The device's slot.
    pub slot: u32,
    /// Zero.
    pub reserved: u32,
}

/// Client to broker: compare what NVML shows for me on a slot with what I charged. Answered by an [`Answer`]:
/// `VERDICT_GRANTED` when the job is within its limit with it (or nothing can be measured), `VERDICT_LIMIT`,
/// `VERDICT_PROCESS_LIMIT` or `VERDICT_CARD_FULL` when not; `granted` then says what it takes, in bytes, as far as that
/// is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Measure {
    /// Kind [`Measure::KIND`].
    pub header: Header,
    /// The device's slot.
    pub slot: u32,
    /// One of `MEASURE_*`.
    pub stage: u32,
}

/// A context is about to be made: is there room for what one costs on this device, as far as that is known? Room that
/// is granted is kept until the context was measured, at most [`MEASURE_KEPT_NS`].
pub const MEASURE_BEFORE: u32 = 0;
/// A context, module or heap was made just now: measure, and say whether it may stay. Also sent when the driver refused
/// what [`MEASURE_BEFORE`] announced, or what was made has been destroyed again.
pub const MEASURE_AFTER: u32 = 1;
/// A context has ended: measure, so that what it held is free to the program and to its job. Always granted, once that
/// was measured.
pub const MEASURE_ENDED: u32 = 2;
/// How long the room of an announced context is kept for it: a cold start of a driver takes seconds.
pub const MEASURE_KEPT_NS: u64 = 60 * crate::units::SECOND_NS;

/// Client to broker: something worth a line in `ps`, `why` and `events`; never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Notice {
    /// Kind [`Notice::KIND`].
    pub header: Header,
    /// One of `NOTICE_*`.
    pub what: u32,
    /// The device's slot where it matters.
    pub slot: u32,
    /// A number whose meaning `what` gives.
    pub value: u64,
}

/// Sharing was turned off in this process because an invariant broke; `value` is the place's number.
pub const NOTICE_SHARING_OFF: u32 = 1;
/// A second copy of the driver lives in a dlmopen namespace this library does not reach.
pub const NOTICE_FOREIGN_NAMESPACE: u32 = 2;
/// Allocations were refused because no broker answered; `value` is how many since this was last said, and `slot` that
/// of the last. Said when a broker answers again.
pub const NOTICE_NO_BROKER: u32 = 3;
/// An allocation was denied; `value` is its bytes.
pub const NOTICE_DENIED: u32 = 4;
/// What the driver holds for this process beyond its charges may have changed: worth a measurement soon. `value` is the
/// change in bytes as the client guesses it, as a two's complement number.
pub const NOTICE_OVERHEAD: u32 = 5;
/// The driver answered a look-up with a function that is one of ours and of an ABI that nobody can tell; `value` is the
/// CUDA version that was asked for.
pub const NOTICE_UNKNOWN_ENTRY_POINT: u32 = 6;

/// This client is about to let go of its pages ([`Park`]); it has done so when the connection ends.
pub const NOTICE_PARKED: u32 = 7;
/// Denials were no failure: the program was granted memory before it was denied a second time. `value` is how many
/// answers denied since the last grant, and `slot` that of the last.
pub const NOTICE_RECOVERED: u32 = 8;

macro_rules! kinds {
    ($($direction:ident { $($(#[$doc:meta])* $name:ident = $kind:literal),* $(,)? })*) => {$(
        $(impl $name {
            /// Number of this message on the wire.
            pub const KIND: u16 = $kind;
            /// A header for this message with the sender's version.
            #[must_use]
            pub const fn header(sequence: u32) -> Header {
                let length = size_of::<$name>() as u16;
                Header { magic: MAGIC, major: MAJOR, minor: MINOR, kind: $kind, length, sequence }
            }
        })*
        /// One decoded packet of this direction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        // Decoded on the stack once a packet, never kept: boxing would need an allocator that the library has not.
        #[allow(clippy::large_enum_variant, missing_docs)]
        pub enum $direction { $($name($name)),* }
        impl $direction {
            /// Decodes one packet.
            ///
            /// # Errors
            /// [`DecodeError`] when the packet is no message of this direction and major.
            pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
                let Ok((header, _)) = Header::read_from_prefix(packet) else { return Err(DecodeError::TooShort) };
                if header.magic != MAGIC { return Err(DecodeError::Magic) }
                if header.major != MAJOR { return Err(DecodeError::Major(header.major)) }
                if usize::from(header.length) != packet.len() { return Err(DecodeError::Length) }
                match header.kind {
                    $($kind => match $name::read_from_prefix(packet) {
                        Ok((body, _)) => Ok(Self::$name(body)),
                        Err(_) => Err(DecodeError::TooShort),
                    },)*
                    other => Err(DecodeError::Kind(other)),
                }
            }
        }
    )*};
}

kinds! {
    ToBroker { Hello = 1, Devices = 2, Ask = 3, Usage = 4, Notice = 5, Measure = 6 }
    ToClient { Welcome = 64, Refused = 65, Answer = 66, Park = 67 }
}

/// Why a packet is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its header or body.
    TooShort,
    /// First four bytes are not [`MAGIC`].
    Magic,
    /// Another protocol major.
    Major(u16),
    /// The length field is not the packet's length.
    Length,
    /// No message of this direction has this kind.
    Kind(u16),
}

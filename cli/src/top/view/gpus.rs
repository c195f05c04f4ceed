// SPDX-License-Identifier: Apache-2.0
//! The GPUs: memory as a bar and in numbers, whose the time is, and what the GPU feels.

use partage_protocol::admin::DeviceView;

use crate::show::terminal::model;
use crate::show::time;
use crate::top::fields::{compact, percent};
use crate::top::state::Shot;
use crate::top::view::bars;
use crate::top::view::canvas::{Canvas, Ink};

/// From here on bar and numbers have one line.
const WIDE: u16 = 130;

/// What is drawn of the memory: by jobs, by processes of no job, promised and not used, free.
struct Memory {
    whole: u64,
    jobs: u64,
    unmanaged: u64,
    unused: u64,
    free: u64,
}

impl Memory {
    fn of(device: &DeviceView) -> Self {
        let taken = device.committed_bytes.max(device.used_bytes);
        Self {
            whole: device.usable_bytes.max(taken),
            jobs: device.used_bytes.saturating_sub(device.unmanaged_bytes),
            unmanaged: device.unmanaged_bytes,
            unused: taken - device.used_bytes,
            free: device.usable_bytes.saturating_sub(taken),
        }
    }
}

/// The four kinds with their characters.
fn kinds(canvas: &Canvas) -> [(&'static str, Ink); 4] {
    let words = canvas.either(["█", "▚", "▒", "·"], ["#", "%", "=", "."]);
    let inks = [Ink::Good, Ink::Unmanaged, Ink::Promised, Ink::Dim];
    std::array::from_fn(|place| (words[place], inks[place]))
}

/// How many lines the GPUs have where `room` is what they may have at most.
pub fn lines(canvas: &Canvas, gpus: usize, room: u16) -> u16 {
    u16::try_from(gpus)
        .unwrap_or(u16::MAX)
        .saturating_mul(each(canvas, gpus, room))
        .min(room)
}

/// Lines of one GPU.
fn each(canvas: &Canvas, gpus: usize, room: u16) -> u16 {
    let whole = if canvas.width() >= WIDE { 2 } else { 3 };
    if usize::from(whole) * gpus <= usize::from(room) {
        whole
    } else {
        1
    }
}

/// Draws them from line `y` on.
pub fn draw(canvas: &mut Canvas, shot: &Shot, y: u16, room: u16) {
    let devices = &shot.status.devices;
    let each = each(canvas, devices.len(), room);
    let fitting = usize::from(room / each);
    let shown = if devices.len() > fitting {
        fitting.saturating_sub(1)
    } else {
        fitting
    };
    for (device, y) in devices.iter().take(shown).zip((y..).step_by(usize::from(each))) {
        match each {
            1 => draw_short(canvas, device, shot, y),
            2 => {
                let x = draw_label(canvas, device, 24, y);
                let numbers = 62;
                let bar = canvas.width().saturating_sub(x + numbers + 2);
                draw_bar(canvas, device, x, y, bar);
                draw_numbers(canvas, device, x + bar + 2, y);
                draw_time(canvas, device, shot, y + 1);
            }
            _ => {
                let x = draw_label(canvas, device, 16, y);
                let bar = canvas.width().saturating_sub(x);
                draw_bar(canvas, device, x, y, bar);
                draw_numbers(canvas, device, 2, y + 1);
                draw_time(canvas, device, shot, y + 2);
            }
        }
    }
    let left = devices.len().saturating_sub(shown);
    if left > 0 && room > 0 {
        let more = format!("{left} more GPUs: partage status");
        canvas.put(0, y + room - 1, canvas.width(), &more, Ink::Dim);
    }
}

/// `GPU 0 H200  ok`; answers where the bar begins.
fn draw_label(canvas: &mut Canvas, device: &DeviceView, model_width: u16, y: u16) -> u16 {
    let x = canvas.put(0, y, 8, &format!("GPU {} ", device.index), Ink::Bold);
    canvas.put(x, y, model_width, model(&device.model), Ink::Plain);
    let x = 7 + model_width;
    canvas.put(x, y, 9, &device.state, Ink::of_state(&device.state));
    x + 10
}

fn draw_bar(canvas: &mut Canvas, device: &DeviceView, mut x: u16, y: u16, width: u16) {
    let memory = Memory::of(device);
    let cells = bars::cells(width, memory.whole, [memory.jobs, memory.unmanaged, memory.unused]);
    for ((word, ink), count) in kinds(canvas).into_iter().zip(cells) {
        x = canvas.put(x, y, count, &word.repeat(usize::from(count)), ink);
    }
}

fn draw_numbers(canvas: &mut Canvas, device: &DeviceView, mut x: u16, y: u16) {
    let memory = Memory::of(device);
    let amounts = [
        ("used", memory.jobs),
        ("unmanaged", memory.unmanaged),
        ("promised", device.promised_bytes),
        ("free", memory.free),
    ];
    for ((word, bytes), (kind, ink)) in amounts.into_iter().zip(kinds(canvas)) {
        x = canvas.put(x, y, 1, kind, ink) + 1;
        x = canvas.put(x, y, 20, &format!("{word} {}", compact(bytes)), Ink::Plain) + 1;
    }
    let whole = format!("of {}", compact(device.usable_bytes));
    if usize::from(x) + whole.len() <= usize::from(canvas.width()) {
        canvas.put(x, y, 10, &whole, Ink::Plain);
    }
}

/// What slows it down or is wrong with it, what NVML says of it, and whose the time is.
fn draw_time(canvas: &mut Canvas, device: &DeviceView, shot: &Shot, y: u16) {
    let width = canvas.width();
    let mut x = 2;
    let wrong = device.throttle.join(", ");
    if !wrong.is_empty() {
        x = canvas.put(x, y, width - x, &format!("{wrong}  "), Ink::Warn);
    }
    let said = match (device.state.as_str(), device.notes.first()) {
        ("ok", _) | (_, None) => [sensors(device), time_of(device, shot)].concat().join("  "),
        (_, Some(note)) => note.clone(),
    };
    canvas.put(x, y, width.saturating_sub(x), &said, Ink::Plain);
}

fn draw_short(canvas: &mut Canvas, device: &DeviceView, shot: &Shot, y: u16) {
    let x = draw_label(canvas, device, 10, y);
    draw_bar(canvas, device, x, y, 12);
    let memory = Memory::of(device);
    let used = format!("{} of {}", compact(device.used_bytes), compact(memory.whole));
    let parts = [
        vec![used],
        device.throttle.clone(),
        sensors(device),
        time_of(device, shot),
    ]
    .concat();
    let x = x + 14;
    canvas.put(x, y, canvas.width().saturating_sub(x), &parts.join("  "), Ink::Plain);
}

/// `97 % busy`, `71 C`, `650 W`: what NVML says.
fn sensors(device: &DeviceView) -> Vec<String> {
    let busy = device.utilization.map(|part| format!("{} busy", percent(part)));
    let temperature = device.temperature_celsius.map(|degrees| format!("{degrees} C"));
    let power = device.power_watts.map(|watts| format!("{watts:.0} W"));
    [busy, temperature, power].into_iter().flatten().collect()
}

/// `time: j41 60 %, j42 30 %, unmanaged 5 %`; where nothing is measured, whose the GPU is.
fn time_of(device: &DeviceView, shot: &Shot) -> Vec<String> {
    let mut parts: Vec<(String, f64)> = Vec::new();
    for job in &shot.jobs {
        let here = job.devices.iter().filter(|own| own.uuid == device.uuid);
        let got: f64 = here.filter_map(|own| own.time.as_ref()).map(|time| time.got_1s).sum();
        if got > 0.0 {
            parts.push((job.job.clone(), got));
        }
    }
    parts.sort_by(|one, other| other.1.total_cmp(&one.1));
    let unmanaged = device.unmanaged_time.filter(|part| *part > 0.0);
    parts.extend(unmanaged.map(|part| ("unmanaged".to_owned(), part)));
    let promised = (device.promised_time > 0.0).then(|| format!("{} promised", time::percent(device.promised_time)));
    let parts = parts.iter().map(|(who, part)| format!("{who} {}", percent(*part)));
    let said: Vec<String> = parts.chain(promised).collect();
    match (said.as_slice(), device.jobs.as_slice()) {
        ([], []) => vec!["no job".to_owned()],
        ([], [job]) => vec![format!("{job} alone")],
        ([], jobs) => vec![jobs.join(" ")],
        (said, _) => vec![format!("time: {}", said.join(", "))],
    }
}

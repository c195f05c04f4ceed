// SPDX-License-Identifier: Apache-2.0
//! A job's devices in words: number, model, limit.

use partage_protocol::admin::JobDeviceView;
use partage_protocol::aliases::Variable;
use partage_protocol::message::NO_INDEX;
use partage_protocol::size::format_bytes;

use crate::show::terminal;

/// The device's number; a job that ended may have had one that is not here any more.
pub fn gpu(device: &JobDeviceView) -> String {
    match device.index {
        NO_INDEX => "?".to_owned(),
        index => index.to_string(),
    }
}

/// Its limit, or that it has none.
pub fn limit(device: &JobDeviceView) -> String {
    device.limit_bytes.map_or("none".to_owned(), format_bytes)
}

/// `0,1`: the numbers of these devices.
pub fn places(devices: &[JobDeviceView]) -> String {
    devices.iter().map(JobDeviceView::place).collect::<Vec<_>>().join(",")
}

/// `GPU 3 (H200), limit 35.2 GiB` or `GPUs 0,1 (H200), limit 8 GiB each`.
pub fn devices_text(devices: &[JobDeviceView]) -> String {
    let indices = places(devices);
    let mut models: Vec<&str> = devices.iter().map(|d| terminal::model(&d.model)).collect();
    models.dedup();
    let is_one = devices.len() == 1;
    let mut limits: Vec<Option<u64>> = devices.iter().map(|d| d.limit_bytes).collect();
    limits.dedup();
    let limit = match limits.as_slice() {
        [] | [None] => "no limit".to_owned(),
        [Some(bytes)] if is_one => format!("limit {}", format_bytes(*bytes)),
        [Some(bytes)] => format!("limit {} each", format_bytes(*bytes)),
        several => {
            let one = |limit: &Option<u64>| limit.map_or("none".to_owned(), format_bytes);
            format!("limits {}", several.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "GPU{} {indices} ({}), {limit}{}",
        if is_one { "" } else { "s" },
        models.join(", "),
        aliases_text(devices)
    )
}

/// ` (CUDA_DEVICE_MEMORY_LIMIT=1g)` where other tools' variables set the limits; what one wrote oneself is not
/// repeated.
fn aliases_text(devices: &[JobDeviceView]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for device in devices {
        for words in [&device.limit_from, &device.request_from] {
            let name = words.split('=').next().unwrap_or_default();
            if Variable::of(name.as_bytes()).is_some() && !said.contains(&words.as_str()) {
                said.push(words);
            }
        }
    }
    if said.is_empty() {
        String::new()
    } else {
        format!(" ({})", said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, limit: Option<u64>) -> JobDeviceView {
        JobDeviceView {
            index,
            uuid: format!("GPU-{index}"),
            model: "NVIDIA H200".to_owned(),
            limit_bytes: limit,
            request_bytes: 0,
            used_bytes: 0,
            peak_bytes: 0,
            granted_bytes: 0,
            denied: partage_protocol::admin::DeniedView::default(),
            limit_from: String::new(),
            request_from: String::new(),
            process_limit_bytes: None,
            process_limit_from: String::new(),
            overhead_bytes: 0,
            managed_bytes: 0,
            time: None,
        }
    }

    #[test]
    fn the_line_on_the_terminal_reads_the_value_back() {
        let limit = (35.2 * (1_u64 << 30) as f64) as u64;
        assert_eq!(devices_text(&[device(3, Some(limit))]), "GPU 3 (H200), limit 35.2 GiB");
        assert_eq!(devices_text(&[device(3, None)]), "GPU 3 (H200), no limit");
        let two = [device(0, Some(8 << 30)), device(1, Some(8 << 30))];
        assert_eq!(devices_text(&two), "GPUs 0,1 (H200), limit 8 GiB each");
        let uneven = [device(0, Some(8 << 30)), device(1, Some(4 << 30))];
        assert_eq!(devices_text(&uneven), "GPUs 0,1 (H200), limits 8 GiB, 4 GiB");
        let mut alias = device(3, Some(1 << 30));
        alias.limit_from = "CUDA_DEVICE_MEMORY_LIMIT=1g".to_owned();
        assert_eq!(
            devices_text(&[alias.clone()]),
            "GPU 3 (H200), limit 1 GiB (CUDA_DEVICE_MEMORY_LIMIT=1g)"
        );
        alias.limit_from = "--mem 1GiB".to_owned();
        assert_eq!(devices_text(&[alias]), "GPU 3 (H200), limit 1 GiB");
    }
}

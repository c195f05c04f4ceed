// SPDX-License-Identifier: Apache-2.0
//! Two containers that always want the GPU: each gets its share, by the simulated device's own account.

use super::podman::{Podman, describe};
use crate::artefacts::package_dir;
use crate::cases::ruled_host::Host;
use crate::cases::shares::measure::{MILLISECOND, TOLERANCE, WARM_UP, WINDOW, are_as_expected};
use crate::rig::Rig;
use crate::time_client;
use crate::truth::{Sample, Truth};

pub fn weights(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(
        rig,
        "schema = 1\n[class.light]\nweight = 100\n[class.heavy]\nweight = 300\n",
    );
    describe(rig);
    podman.add(&time_client::path());
    let kernels = format!("-v={}:/kernels:ro", package_dir().join("kernels").display());
    let options = [kernels.as_str(), "-e=TIME_CLIENT_KERNELS=/kernels"];
    let classes = ["light", "heavy"];
    for class in classes {
        podman.detached(class, class, &options, &["/bin/time_client", "0", "kernel", "500000"]);
    }
    // Each of them is the first process of its namespace: numbers do not tell them apart.
    let namespaces = classes.map(|class| podman.pid_namespace(class));
    let truth = Truth::of(rig);
    truth.wait_for(0, "the first work of both", |now: &Sample| {
        namespaces.iter().all(|namespace| now.busy_in_ns(*namespace) > 0)
    });
    assert_eq!(rig.jobs().len(), 2, "{:?}", rig.jobs());
    truth.watch(0, WARM_UP);
    truth.judge(rig, 0, WINDOW, &[], |span| {
        let found = namespaces.map(|namespace| span.share_in_ppm(namespace));
        rig.note(format!("shares {} + {} ppm", found[0], found[1]));
        are_as_expected(span, &found, &[250_000, 750_000], MILLISECOND / 2, TOLERANCE)
    });
}

// SPDX-License-Identifier: Apache-2.0
//! `docs/metrics.md` has every metric, as declared.

use partage_metrics::table;

const BEGIN: &str = "<!-- table -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_page_has_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a beginning");
    let (_, after) = rest.split_once(END).expect("an end");
    let made = format!("{before}{BEGIN}{}{END}{after}", table::markdown());
    if std::env::var_os("PARTAGE_WRITE_DOCS").is_some() {
        std::fs::write(path, &made).expect("writable");
        return;
    }
    assert!(
        page == made,
        "docs/metrics.md is old: PARTAGE_WRITE_DOCS=1 cargo test -p partage-metrics"
    );
}

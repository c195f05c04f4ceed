// SPDX-License-Identifier: Apache-2.0
//! `docs/events.md` has every kind of event, as declared.

use partage_protocol::admin::EVENT_KINDS;

const BEGIN: &str = "<!-- table -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_page_has_every_kind() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a beginning");
    let (_, after) = rest.split_once(END).expect("an end");
    let mut made = format!("{before}{BEGIN}| kind | tells | fields |\n|---|---|---|\n");
    for kind in EVENT_KINDS {
        let fields: Vec<String> = kind.fields.iter().map(|field| format!("`{field}`")).collect();
        made += &format!("| `{}` | {} | {} |\n", kind.word, kind.tells, fields.join(", "));
    }
    made += &format!("{END}{after}");
    if std::env::var_os("PARTAGE_WRITE_DOCS").is_some() {
        std::fs::write(path, &made).expect("writable");
        return;
    }
    assert!(
        page == made,
        "docs/events.md is old: PARTAGE_WRITE_DOCS=1 cargo test -p partage-protocol"
    );
}

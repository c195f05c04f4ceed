// SPDX-License-Identifier: Apache-2.0
//! What this machine is called: the names by which a request may ask for it.
//!
//! Of names that only begin as the machine's does, none: whoever owns `node1.example.org` can lead it here, and have a
//! page of theirs read the answer. So a domain is one that this machine itself knows.

use nix::unistd::gethostname;

/// The names, in small letters.
pub(super) fn own_names() -> Vec<String> {
    let hostname = gethostname().ok().and_then(|name| name.into_string().ok());
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    names(
        &hostname.unwrap_or_default(),
        &read("/etc/hosts"),
        &read("/etc/resolv.conf"),
    )
}

/// `localhost`; the host's name, whole and without its domain; what `hosts` calls it; and it in each domain that
/// `resolver` searches.
fn names(hostname: &str, hosts: &str, resolver: &str) -> Vec<String> {
    let hostname = hostname.to_ascii_lowercase();
    let first = hostname.split('.').next().unwrap_or_default().to_owned();
    let mut names = vec!["localhost".to_owned()];
    if first.is_empty() {
        return names;
    }
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default().to_ascii_lowercase();
        // The first word is the address.
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        if words.contains(&hostname.as_str()) || words.contains(&first.as_str()) {
            names.extend(words.iter().map(|word| (*word).to_owned()));
        }
    }
    for line in resolver.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("search" | "domain")) {
            let domains = words.map(|domain| domain.trim_matches('.').to_ascii_lowercase());
            names.extend(
                domains
                    .filter(|domain| !domain.is_empty())
                    .map(|domain| format!("{first}.{domain}")),
            );
        }
    }
    names.extend([hostname, first]);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str = "127.0.0.1 localhost\n127.0.1.1 Node1.lab.example node1 # gpus\n10.0.0.2 node2 # node1\n";
    const RESOLVER: &str = "# search nowhere\nnameserver 10.0.0.1\nsearch example.org. .\n";

    #[test]
    fn a_machine_is_called_as_it_calls_itself() {
        let names = names("NODE1", HOSTS, RESOLVER);
        for name in ["localhost", "node1", "node1.lab.example", "node1.example.org"] {
            assert!(names.iter().any(|one| one == name), "{name} in {names:?}");
        }
        for name in ["node2", "node1.", "node1.nowhere", "127.0.1.1", "gpus"] {
            assert!(!names.iter().any(|one| one == name), "{name} in {names:?}");
        }
    }

    #[test]
    fn one_with_a_domain_is_called_without_it_too() {
        assert_eq!(
            names("node1.example.org", "", ""),
            ["localhost", "node1.example.org", "node1"]
        );
        assert_eq!(
            names("", "127.0.0.1 localhost other", "search example.org"),
            ["localhost"]
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Whether a request may have an answer: judged from its head alone.

use std::net::IpAddr;

/// The longest head of a request that is read.
pub(super) const LONGEST: usize = 8 * 1024;

/// Headers of one request.
const MOST_HEADERS: usize = 64;

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no request of HTTP.
    Malformed,
    /// Its head does not end within [`LONGEST`].
    TooLong,
    /// It is no GET.
    Method,
    /// It names a host that this is not: a page of somebody else's sent a browser here.
    Host,
    /// It brings no token, or another.
    Token,
    /// There is nothing at its path.
    Path,
    /// The broker does not answer.
    Silent,
    /// As many as are served are being served.
    Busy,
}

impl Refusal {
    /// Its status line, and a sentence.
    pub(super) const fn said(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed => ("400 Bad Request", "This is no HTTP request."),
            Self::TooLong => ("431 Request Header Fields Too Large", "At most 8 KiB are read."),
            Self::Method => ("405 Method Not Allowed", "GET alone."),
            Self::Host => (
                "421 Misdirected Request",
                "Use this machine's name or address, or localhost.",
            ),
            Self::Token => ("401 Unauthorized", "Send the bearer token of [metrics] token_file."),
            Self::Path => ("404 Not Found", "There is /metrics."),
            Self::Silent => ("503 Service Unavailable", "The broker does not answer in time."),
            Self::Busy => ("503 Service Unavailable", "Sixteen scrapes are under way."),
        }
    }
}

/// What a request is judged by.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// What this machine is called, in small letters.
    pub(super) names: Vec<String>,
    /// The token that is wanted.
    pub(super) token: Option<String>,
}

impl Rules {
    /// Judges what was read so far. `None`: the head is not whole yet.
    pub(super) fn judge(&self, head: &[u8]) -> Option<Result<(), Refusal>> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Err(httparse::Error::TooManyHeaders) => return Some(Err(Refusal::TooLong)),
            Err(_) => return Some(Err(Refusal::Malformed)),
            Ok(httparse::Status::Partial) if head.len() >= LONGEST => return Some(Err(Refusal::TooLong)),
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
        }
        Some(self.judge_whole(&request))
    }

    fn judge_whole(&self, request: &httparse::Request<'_, '_>) -> Result<(), Refusal> {
        if request.method != Some("GET") {
            return Err(Refusal::Method);
        }
        // Two hosts: one of them is not meant for us.
        let mut hosts = values(request, "host");
        if !(hosts.next().is_some_and(|host| self.is_own(host)) && hosts.next().is_none()) {
            return Err(Refusal::Host);
        }
        if let Some(token) = &self.token {
            let mut brought = values(request, "authorization").filter_map(bearer);
            if !brought.next().is_some_and(|brought| is_same(brought, token)) {
                return Err(Refusal::Token);
            }
        }
        let path = request.path.unwrap_or_default();
        match path.split('?').next() {
            Some("/metrics") => Ok(()),
            _ => Err(Refusal::Path),
        }
    }

    /// Is this host ours? An address in digits is: no name of somebody else's leads to it. Of names, the machine's own.
    fn is_own(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        bare.unwrap_or(&name).parse::<IpAddr>().is_ok() || self.names.contains(&name)
    }
}

fn values<'a>(request: &'a httparse::Request<'_, '_>, name: &'a str) -> impl Iterator<Item = &'a str> {
    let of_name = request
        .headers
        .iter()
        .filter(move |header| header.name.eq_ignore_ascii_case(name));
    of_name.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Compares all of both: how long it takes says nothing of where they differ.
fn is_same(brought: &str, wanted: &str) -> bool {
    let (brought, wanted) = (brought.as_bytes(), wanted.as_bytes());
    let differs = |(index, byte): (usize, &u8)| byte ^ brought.get(index).copied().unwrap_or(0);
    let differences = wanted.iter().enumerate().map(differs).fold(0, |all, one| all | one);
    brought.len() == wanted.len() && differences == 0
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons within an address in brackets are no port's.
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(token: Option<&str>) -> Rules {
        Rules {
            names: ["localhost", "node1", "node1.example.org"].map(str::to_owned).to_vec(),
            token: token.map(str::to_owned),
        }
    }

    fn judged(rules: &Rules, head: &str) -> Option<Result<(), Refusal>> {
        rules.judge(head.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn a_scrape_is_answered() {
        for host in [
            "127.0.0.1:9811",
            "127.0.0.1",
            "[::1]:9811",
            "[::1]",
            "localhost:9811",
            "LOCALHOST",
            "node1:9811",
            "node1.example.org:9811",
            "10.1.2.3:9811",
        ] {
            let head = format!("GET /metrics HTTP/1.1\nHost: {host}\n\n");
            assert_eq!(judged(&rules(None), &head), Some(Ok(())), "{host}");
        }
        let head = "GET /metrics?x=1 HTTP/1.1\nHost: localhost\nAccept: */*\n\n";
        assert_eq!(judged(&rules(None), head), Some(Ok(())));
    }

    #[test]
    fn what_is_no_scrape_is_refused() {
        for (head, refusal) in [
            ("POST /metrics HTTP/1.1\nHost: localhost\n\n", Refusal::Method),
            ("HEAD /metrics HTTP/1.1\nHost: localhost\n\n", Refusal::Method),
            ("GET / HTTP/1.1\nHost: localhost\n\n", Refusal::Path),
            ("GET /metrics/ HTTP/1.1\nHost: localhost\n\n", Refusal::Path),
            ("GET /metrics HTTP/1.1\n\n", Refusal::Host),
            ("GET /metrics HTTP/1.1\nHost: evil.example\n\n", Refusal::Host),
            ("GET /metrics HTTP/1.1\nHost: node1evil.example\n\n", Refusal::Host),
            ("GET /metrics HTTP/1.1\nHost: node1.evil.example\n\n", Refusal::Host),
            ("GET /metrics HTTP/1.1\nHost: localhost.evil.example\n\n", Refusal::Host),
            (
                "GET /metrics HTTP/1.1\nHost: localhost\nHost: evil.example\n\n",
                Refusal::Host,
            ),
            ("GET /metrics HTTP/1.1\nHost:\n\n", Refusal::Host),
            ("nonsense\n\n", Refusal::Malformed),
            ("GET /metrics HTTP/9.9\nHost: localhost\n\n", Refusal::Malformed),
        ] {
            assert_eq!(judged(&rules(None), head), Some(Err(refusal)), "{head}");
        }
        let many: String = (0..100).map(|n| format!("X-{n}: y\n")).collect();
        let head = format!("GET /metrics HTTP/1.1\nHost: localhost\n{many}\n");
        assert_eq!(judged(&rules(None), &head), Some(Err(Refusal::TooLong)));
        let head = format!("GET /metrics HTTP/1.1\nHost: localhost\nX: {}", "y".repeat(LONGEST));
        assert_eq!(judged(&rules(None), &head), Some(Err(Refusal::TooLong)));
    }

    #[test]
    fn a_token_is_wanted_whole() {
        let rules = rules(Some("s3cret"));
        for (value, is_taken) in [
            ("Bearer s3cret", true),
            ("bearer  s3cret ", true),
            ("Bearer s3cre", false),
            ("Bearer s3crett", false),
            ("Bearer ", false),
            ("Basic s3cret", false),
            ("s3cret", false),
        ] {
            let head = format!("GET /metrics HTTP/1.1\nHost: localhost\nAuthorization: {value}\n\n");
            let expected = if is_taken { Ok(()) } else { Err(Refusal::Token) };
            assert_eq!(judged(&rules, &head), Some(expected), "{value}");
        }
        let head = "GET /metrics HTTP/1.1\nHost: localhost\n\n";
        assert_eq!(judged(&rules, head), Some(Err(Refusal::Token)));
    }

    proptest! {
        #[test]
        fn only_a_whole_head_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if rules(None).judge(&bytes) == Some(Ok(())) {
                prop_assert!(bytes.starts_with(b"GET /metrics"));
            }
        }

        #[test]
        fn a_head_is_awaited_until_it_is_whole(cut in 0usize..40) {
            let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
            prop_assert_eq!(rules(None).judge(&head[..cut]), None);
        }
    }
}

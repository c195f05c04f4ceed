// SPDX-License-Identifier: Apache-2.0
//! `/proc/PID/net/tcp` and `tcp6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How far a connection is (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Both sides may speak.
    Established,
    /// The other side was asked.
    Asking,
    /// It waits for connections.
    Listening,
    /// It is no connection.
    Unconnected,
    /// One side has ended it, or both have.
    Ending,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// How far it is.
    pub state: TcpState,
    /// The socket; 0 for one that no process has.
    pub inode: u64,
}

/// The table's lines.
pub fn parse(text: &str) -> Vec<Tcp> {
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Tcp> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    Some(Tcp {
        local: address(words.get(1)?)?,
        remote: address(words.get(2)?)?,
        state: match u8::from_str_radix(words.get(3)?, 16).ok()? {
            1 => TcpState::Established,
            2 | 3 | 12 => TcpState::Asking,
            7 => TcpState::Unconnected,
            10 => TcpState::Listening,
            _ => TcpState::Ending,
        },
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Words of the processor's byte order, and a port. An IPv4 address in IPv6's form is an IPv4 one.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, piece) in bytes.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(8 * at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n\
                    1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n\
                    2: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C350 \
                    08 0:0 0:0 0 0 0 0 1\n";
        let found = parse(text);
        let states: Vec<TcpState> = found.iter().map(|tcp| tcp.state).collect();
        assert_eq!(states, [TcpState::Listening, TcpState::Established, TcpState::Ending]);
        assert_eq!(found[1].local, "127.0.0.1:50000".parse().expect("an address"));
        assert_eq!((found[1].remote, found[1].inode), (found[0].local, 4712));
        assert_eq!((found[2].local, found[2].remote), (found[1].remote, found[1].local));
        let six = address("000080FE000000000000000001000000:0050").expect("an address");
        assert_eq!(six, "[fe80::1]:80".parse().expect("an address"));
    }
}

//! Connections whose first record has not come, and which have not named their run.
//!
//! Readers send the record with the first packet, and are never among these connections. Each other connection gets a
//! place. When the places are taken, it takes that of the oldest connection of its address, or of the address that
//! has most.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::client_hello::{Hello, HelloReader};
use super::error::LinkError;

/// The most, and the most of one address.
const MOST: usize = 1024;
const MOST_EACH: usize = 256;
/// Time for the first record.
const LIMIT: Duration = Duration::from_secs(5);
/// How many are accepted, or received, at once.
const AT_ONCE: usize = 64;
/// The pause when there are too many open files.
const BREATH: Duration = Duration::from_millis(100);
/// The number of the listening socket in epoll.
const LISTENER: u64 = 0;

/// A connection with its hello, or why it was closed.
type Received = Result<(TcpStream, Hello), LinkError>;

#[derive(Clone, Copy, Debug)]
struct Limits {
    most: usize,
    each: usize,
}

#[derive(Debug)]
struct Pending {
    socket: TcpStream,
    origin: IpAddr,
    since: Instant,
    hello: HelloReader,
}

#[derive(Debug)]
pub struct PendingConnections {
    listener: TcpListener,
    epoll: Epoll,
    limits: Limits,
    /// By number, in the order in which they came.
    connections: BTreeMap<u64, Pending>,
    last: u64,
}

impl PendingConnections {
    /// # Arguments
    /// * `listener` - where they connect, which does not wait
    /// * `most` - the most connections that there can be
    ///
    /// # Errors
    /// When there can be no epoll instance.
    pub fn new(listener: TcpListener, most: usize) -> nix::Result<Self> {
        let limits = Limits { most: MOST.min(most).max(1), each: MOST_EACH.min(most / 4).max(1) };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Self { listener, epoll, limits, connections: BTreeMap::new(), last: LISTENER })
    }

    /// Waits for connections, at most `at_most`. Returns those that have sent their record or are refused, and
    /// whether more are waiting.
    pub fn wait(&mut self, at_most: Duration) -> (Vec<Received>, bool) {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let limit = if self.connections.is_empty() { at_most } else { at_most.min(LIMIT) };
        let count = self.epoll.wait(&mut events, PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO));
        let count = count.unwrap_or(0);
        self.forget_slow();
        let (mut received, mut more) = (Vec::new(), count == AT_ONCE);
        for event in &events[..count] {
            match event.data() {
                LISTENER => more |= self.accept(&mut received),
                number => received.extend(self.read_more(number)),
            }
        }
        (received, more)
    }

    /// Returns whether more are waiting.
    fn accept(&mut self, received: &mut Vec<Received>) -> bool {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((socket, address)) => received.extend(self.begin(socket, address.ip())),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        thread::sleep(BREATH);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Reads the hello, which has mostly come already. Without it the connection gets a place, and None is returned.
    fn begin(&mut self, socket: TcpStream, address: IpAddr) -> Option<Received> {
        let mut hello = HelloReader::new();
        let Some(received) = hello.read(&socket).transpose() else {
            self.add(Pending { socket, origin: origin(address), since: Instant::now(), hello });
            return None;
        };
        Some(received.map(|hello| (socket, hello)))
    }

    fn read_more(&mut self, number: u64) -> Option<Received> {
        let one = self.connections.get_mut(&number)?;
        let received = one.hello.read(&one.socket).transpose()?;
        let one = self.connections.remove(&number)?;
        Some(received.map(|hello| (one.socket, hello)))
    }

    fn add(&mut self, one: Pending) {
        if let Some(number) = self.displaced(one.origin) {
            self.connections.remove(&number);
        }
        self.last += 1;
        if self.epoll.add(&one.socket, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_ok() {
            self.connections.insert(self.last, one);
        }
    }

    /// The connection that has to give up its place. While there is a free place, None.
    fn displaced(&self, origin: IpAddr) -> Option<u64> {
        let of = |origin: IpAddr| self.connections.iter().filter(move |(_, one)| one.origin == origin);
        let from = if of(origin).count() >= self.limits.each {
            origin
        } else if self.connections.len() >= self.limits.most {
            let mut counts = HashMap::new();
            self.connections.values().for_each(|one| *counts.entry(one.origin).or_insert(0) += 1);
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        of(from).next().map(|(number, _)| *number)
    }

    fn forget_slow(&mut self) {
        while let Some(first) = self.connections.first_entry().filter(|first| first.get().since.elapsed() >= LIMIT) {
            first.remove();
        }
    }
}

/// Reduces an address of IPv6 to its network: the owner of a network has all its addresses.
pub fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Read;
    use std::net::SocketAddr;

    fn pending() -> (PendingConnections, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (PendingConnections::new(listener, 100).unwrap(), address)
    }

    fn complete(pending: &mut PendingConnections) -> usize {
        pending.wait(Duration::from_secs(10)).0.into_iter().flatten().count()
    }

    #[test]
    fn the_next_one_takes_the_place_of_the_oldest_of_the_many() {
        let (mut pending, address) = pending();
        pending.limits = Limits { most: 5, each: 3 };
        let mut arrive = |last: u8| {
            let peer = TcpStream::connect(address).unwrap();
            let socket = loop {
                if let Ok((socket, _)) = pending.listener.accept() {
                    break socket;
                }
            };
            assert!(pending.begin(socket, [10, 0, 0, last].into()).is_none());
            (peer, pending.connections.keys().copied().collect::<Vec<u64>>())
        };
        let (mut first, _) = arrive(1);
        let (_second, _) = arrive(1);
        let (_third, present) = arrive(1);
        assert_eq!(present, [1, 2, 3]);
        let (_fourth, present) = arrive(1);
        assert_eq!(present, [2, 3, 4]);
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "it is closed");
        let _more = [arrive(2).0, arrive(2).0];
        // All places are taken: the address with most connections gives one up.
        assert_eq!(arrive(3).1, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn nobody_stays_for_long() {
        let (mut pending, address) = pending();
        let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        while pending.connections.len() < 2 {
            assert_eq!(complete(&mut pending), 0);
        }
        pending.connections.first_entry().unwrap().get_mut().since -= LIMIT;
        pending.wait(Duration::ZERO);
        assert_eq!(pending.connections.keys().copied().collect::<Vec<u64>>(), [2]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin() {
        for (one, other, same) in [
            ("fd00::1", "fd00::2:1", true),
            ("fd00::1", "fd00:0:0:1::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            let [one, other] = [one, other].map(|text| origin(text.parse().unwrap()));
            assert_eq!(one == other, same, "{one} {other}");
        }
    }
}

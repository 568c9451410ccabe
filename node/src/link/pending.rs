//! Connections whose first record has not come, and which have not named their run.
//!
//! Readers send the record with the first packet, and are never among these connections. Each other connection gets a
//! place. When the places are taken, it takes that of the oldest connection.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::client_hello::{Hello, HelloReader};
use super::error::LinkError;

/// The most of them.
const MOST: usize = 256;
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

#[derive(Debug)]
struct Pending {
    socket: TcpStream,
    since: Instant,
    hello: HelloReader,
}

#[derive(Debug)]
pub struct PendingConnections {
    listener: TcpListener,
    epoll: Epoll,
    most: usize,
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
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Self { listener, epoll, most: MOST.min(most).max(1), connections: BTreeMap::new(), last: LISTENER })
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
                Ok((socket, _)) => received.extend(self.begin(socket)),
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
    fn begin(&mut self, socket: TcpStream) -> Option<Received> {
        let mut hello = HelloReader::new();
        let Some(received) = hello.read(&socket).transpose() else {
            self.add(Pending { socket, since: Instant::now(), hello });
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
        if self.connections.len() >= self.most {
            self.connections.pop_first();
        }
        self.last += 1;
        if self.epoll.add(&one.socket, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_ok() {
            self.connections.insert(self.last, one);
        }
    }

    fn forget_slow(&mut self) {
        while let Some(first) = self.connections.first_entry().filter(|first| first.get().since.elapsed() >= LIMIT) {
            first.remove();
        }
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
    fn the_next_one_takes_the_place_of_the_oldest() {
        let (mut pending, address) = pending();
        pending.most = 2;
        let mut peers = Vec::new();
        for present in [&[1][..], &[1, 2], &[2, 3]] {
            peers.push(TcpStream::connect(address).unwrap());
            let before = pending.last;
            while pending.last == before {
                assert_eq!(complete(&mut pending), 0);
            }
            assert_eq!(pending.connections.keys().copied().collect::<Vec<u64>>(), present);
        }
        assert_eq!(peers[0].read(&mut [0]).unwrap(), 0, "it is closed");
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
}

//! Those who have connected, and have not said yet what shows that they know the key.
//!
//! Who says it with the first packet, as readers do, is never one of them. For the others there is always a place: it is
//! the oldest one of the address, or, when all are taken, of the address that has most.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::hello::{Hello, Words};
use super::Trouble;

/// The most, and the most of one address.
const MOST: usize = 1024;
const MOST_EACH: usize = 256;
/// How long anybody may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How many are accepted, or heard, at once.
const AT_ONCE: usize = 64;
/// The pause when there are too many open files.
const BREATH: Duration = Duration::from_millis(100);
/// What epoll calls the socket that listens.
const DOOR: u64 = 0;

/// One who says the first words of a reader, or why somebody was turned away.
type Heard = Result<(TcpStream, Hello), Trouble>;

#[derive(Clone, Copy, Debug)]
struct Limits {
    most: usize,
    each: usize,
}

#[derive(Debug)]
struct Stranger {
    socket: TcpStream,
    origin: IpAddr,
    since: Instant,
    words: Words,
}

#[derive(Debug)]
pub struct Strangers {
    door: TcpListener,
    epoll: Epoll,
    limits: Limits,
    /// By number, in the order in which they came.
    present: BTreeMap<u64, Stranger>,
    last: u64,
}

impl Strangers {
    /// # Arguments
    /// * `door` - where they connect, which does not wait
    /// * `most` - the most connections that there can be
    ///
    /// # Errors
    /// When there can be no epoll instance.
    pub fn new(door: TcpListener, most: usize) -> nix::Result<Self> {
        let limits = Limits { most: MOST.min(most).max(1), each: MOST_EACH.min(most / 4).max(1) };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&door, EpollEvent::new(EpollFlags::EPOLLIN, DOOR))?;
        Ok(Self { door, epoll, limits, present: BTreeMap::new(), last: DOOR })
    }

    /// Waits, not forever, for those who connect; returns of whom something can be said, and whether more are waiting.
    pub fn hear(&mut self, at_most: Duration) -> (Vec<Heard>, bool) {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let limit = if self.present.is_empty() { at_most } else { at_most.min(LIMIT) };
        let count = self.epoll.wait(&mut events, PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO));
        let count = count.unwrap_or(0);
        self.forget_slow();
        let (mut heard, mut more) = (Vec::new(), count == AT_ONCE);
        for event in &events[..count] {
            match event.data() {
                DOOR => more |= self.accept(&mut heard),
                number => heard.extend(self.hear_again(number)),
            }
        }
        (heard, more)
    }

    /// Returns whether more are waiting.
    fn accept(&mut self, heard: &mut Vec<Heard>) -> bool {
        for _ in 0..AT_ONCE {
            match self.door.accept() {
                Ok((socket, address)) => heard.extend(self.arrive(socket, address.ip())),
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

    /// Mostly there is something to hear already; None: he has a place.
    fn arrive(&mut self, socket: TcpStream, address: IpAddr) -> Option<Heard> {
        let mut words = Words::new();
        let Some(heard) = words.hear(&socket).transpose() else {
            self.add(Stranger { socket, origin: origin(address), since: Instant::now(), words });
            return None;
        };
        Some(heard.map(|hello| (socket, hello)))
    }

    fn hear_again(&mut self, number: u64) -> Option<Heard> {
        let stranger = self.present.get_mut(&number)?;
        let heard = stranger.words.hear(&stranger.socket).transpose()?;
        let stranger = self.present.remove(&number)?;
        Some(heard.map(|hello| (stranger.socket, hello)))
    }

    fn add(&mut self, stranger: Stranger) {
        if let Some(number) = self.displaced(stranger.origin) {
            self.present.remove(&number);
        }
        self.last += 1;
        if self.epoll.add(&stranger.socket, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_ok() {
            self.present.insert(self.last, stranger);
        }
    }

    /// Whose place one more takes; None: there is another one.
    fn displaced(&self, origin: IpAddr) -> Option<u64> {
        let of = |origin: IpAddr| self.present.iter().filter(move |(_, stranger)| stranger.origin == origin);
        let from = if of(origin).count() >= self.limits.each {
            origin
        } else if self.present.len() >= self.limits.most {
            let mut counts = HashMap::new();
            self.present.values().for_each(|stranger| *counts.entry(stranger.origin).or_insert(0) += 1);
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        of(from).next().map(|(number, _)| *number)
    }

    fn forget_slow(&mut self) {
        while let Some(first) = self.present.first_entry().filter(|first| first.get().since.elapsed() >= LIMIT) {
            first.remove();
        }
    }
}

/// Of IPv6 the network: who has one has all of its addresses.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 64)).into(),
        address => address,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{Read, Write};
    use std::net::SocketAddr;

    use crate::link::frame::{record, Kind, MAGIC};
    use crate::link::secret::SIZE;

    fn strangers() -> (Strangers, SocketAddr) {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        door.set_nonblocking(true).unwrap();
        let address = door.local_addr().unwrap();
        (Strangers::new(door, 100).unwrap(), address)
    }

    fn greeting(strangers: &mut Strangers) -> usize {
        strangers.hear(Duration::from_secs(10)).0.into_iter().flatten().count()
    }

    fn hello() -> Vec<u8> {
        record(Kind::Hello, &[&MAGIC[..], &[0; 2 * SIZE]].concat())
    }

    #[test]
    fn the_next_one_takes_the_place_of_the_oldest_of_the_many() {
        let (mut strangers, address) = strangers();
        strangers.limits = Limits { most: 5, each: 3 };
        let mut arrive = |last: u8| {
            let peer = TcpStream::connect(address).unwrap();
            let socket = loop {
                if let Ok((socket, _)) = strangers.door.accept() {
                    break socket;
                }
            };
            assert!(strangers.arrive(socket, [10, 0, 0, last].into()).is_none());
            (peer, strangers.present.keys().copied().collect::<Vec<u64>>())
        };
        let (mut first, _) = arrive(1);
        let (_second, _) = arrive(1);
        let (_third, present) = arrive(1);
        assert_eq!(present, [1, 2, 3]);
        let (_fourth, present) = arrive(1);
        assert_eq!(present, [2, 3, 4]);
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "it is closed");
        let _more = [arrive(2).0, arrive(2).0];
        // All places are taken: those who are most give one up.
        assert_eq!(arrive(3).1, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn who_says_the_words_is_a_stranger_no_more() {
        let (mut strangers, address) = strangers();
        let [mut one, mut two, mut three] = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        while strangers.present.len() < 3 {
            assert_eq!(greeting(&mut strangers), 0);
        }
        two.write_all(&hello()[..9]).unwrap();
        assert_eq!(greeting(&mut strangers), 0);
        two.write_all(&hello()[9..]).unwrap();
        assert_eq!(greeting(&mut strangers), 1);
        three.write_all(b"GET / HTTP/1.1").unwrap();
        assert_eq!(greeting(&mut strangers), 0);
        assert_eq!(strangers.present.len(), 1);
        one.write_all(&hello()).unwrap();
        assert_eq!(greeting(&mut strangers), 1);
        assert!(strangers.present.is_empty());
    }

    #[test]
    fn nobody_stays_for_long() {
        let (mut strangers, address) = strangers();
        let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        while strangers.present.len() < 2 {
            assert_eq!(greeting(&mut strangers), 0);
        }
        strangers.present.first_entry().unwrap().get_mut().since -= LIMIT;
        strangers.hear(Duration::ZERO);
        assert_eq!(strangers.present.keys().copied().collect::<Vec<u64>>(), [2]);
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

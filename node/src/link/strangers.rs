//! Those who have connected, and have not shown yet that they know the key: few, and few of each address.
//!
//! There is always a place for the next one, who takes that of another: one who has said nothing, of those who are most,
//! and of them the one who came first. Who knows the key is past this in milliseconds, and comes again if he is not.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most, and the most of one address.
const MOST: usize = 256;
const MOST_EACH: usize = 64;
/// Who connects more often is not listened to: so many of one address in so long.
const TOO_MANY: u32 = 500;
const WINDOW: Duration = Duration::from_secs(1);
/// Of so many addresses it is counted.
const COUNTED: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Limits {
    most: usize,
    each: usize,
}

/// In the order in which they came.
#[derive(Debug)]
struct Stranger {
    number: u64,
    origin: IpAddr,
    spoke: bool,
    /// None only in tests.
    socket: Option<TcpStream>,
}

#[derive(Debug, Default)]
struct Crowd {
    present: Vec<Stranger>,
    last: u64,
    arrivals: HashMap<IpAddr, u32>,
    since: Option<Instant>,
}

#[derive(Debug)]
pub struct Strangers {
    limits: Limits,
    crowd: Mutex<Crowd>,
}

impl Crowd {
    /// Whether one more of an address is listened to.
    fn counts(&mut self, origin: IpAddr, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + WINDOW) || self.arrivals.len() >= COUNTED {
            self.arrivals.clear();
            self.since = Some(now);
        }
        let arrivals = self.arrivals.entry(origin).or_default();
        *arrivals += 1;
        *arrivals <= TOO_MANY
    }

    /// Whose place one more takes; None: there is another one.
    fn displaced(&self, origin: IpAddr, limits: Limits) -> Option<usize> {
        let number = |origin: IpAddr| self.present.iter().filter(|stranger| stranger.origin == origin).count();
        let from = if number(origin) >= limits.each {
            origin
        } else if self.present.len() >= limits.most {
            self.present.iter().map(|stranger| stranger.origin).max_by_key(|origin| number(*origin))?
        } else {
            return None;
        };
        let theirs = || self.present.iter().enumerate().filter(|(_, stranger)| stranger.origin == from);
        theirs().find(|(_, stranger)| !stranger.spoke).or_else(|| theirs().next()).map(|(index, _)| index)
    }

    fn add(&mut self, origin: IpAddr, socket: Option<TcpStream>, limits: Limits) -> u64 {
        if let Some(index) = self.displaced(origin, limits) {
            if let Some(socket) = self.present.remove(index).socket {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        self.last += 1;
        self.present.push(Stranger { number: self.last, origin, spoke: false, socket });
        self.last
    }
}

impl Strangers {
    /// # Arguments
    /// * `most` - the most connections that there can be
    pub fn new(most: usize) -> Self {
        let limits = Limits { most: MOST.min(most / 2).max(1), each: MOST_EACH.min(most / 4).max(1) };
        Self { limits, crowd: Mutex::default() }
    }

    /// The number of one more; None: he comes too often. He is to be forgotten when he is admitted, or gone.
    pub fn welcome(&self, socket: &TcpStream) -> Option<u64> {
        let origin = origin(socket.peer_addr().ok()?.ip());
        let mut crowd = self.crowd();
        if !crowd.counts(origin, Instant::now()) {
            return None;
        }
        Some(crowd.add(origin, Some(socket.try_clone().ok()?), self.limits))
    }

    /// He has said something that those say who know the key.
    pub fn spoke(&self, number: u64) {
        let mut crowd = self.crowd();
        if let Some(stranger) = crowd.present.iter_mut().find(|stranger| stranger.number == number) {
            stranger.spoke = true;
        }
    }

    pub fn forget(&self, number: u64) {
        self.crowd().present.retain(|stranger| stranger.number != number);
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
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

    const LIMITS: Limits = Limits { most: 5, each: 3 };

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn the_next_one_takes_the_place_of_the_first_silent_one_of_the_many() {
        let mut crowd = Crowd::default();
        let mut arrive = |last: u8, speaks: bool| {
            let number = crowd.add(address(last), None, LIMITS);
            crowd.present.last_mut().unwrap().spoke = speaks;
            let numbers: Vec<u64> = crowd.present.iter().map(|stranger| stranger.number).collect();
            assert_eq!(numbers.last(), Some(&number));
            numbers
        };
        arrive(1, true);
        arrive(1, false);
        assert_eq!(arrive(1, true), [1, 2, 3]);
        // One of many of the same address: first those who are silent, then those who came first.
        assert_eq!(arrive(1, true), [1, 3, 4]);
        assert_eq!(arrive(1, true), [3, 4, 5]);
        assert_eq!(arrive(2, false), [3, 4, 5, 6]);
        assert_eq!(arrive(2, false), [3, 4, 5, 6, 7]);
        // All places are taken: those who are most give one up.
        assert_eq!(arrive(3, false), [4, 5, 6, 7, 8]);
        assert_eq!(arrive(2, true), [4, 5, 7, 8, 9]);
    }

    #[test]
    fn who_comes_too_often_is_not_listened_to() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        assert!((0..TOO_MANY).all(|_| crowd.counts(address(1), now)));
        assert!(!crowd.counts(address(1), now));
        assert!(crowd.counts(address(2), now));
        assert!(crowd.counts(address(1), now + WINDOW));
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

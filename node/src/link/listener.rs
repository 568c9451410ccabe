//! Where `serve` waits for readers from other machines.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::resource::{getrlimit, Resource};
use nix::sys::socket::{setsockopt, sockopt, Backlog};

use super::archive;
use super::client_hello::{Doorkeeper, Hello};
use super::frame::Kind;
use super::handshake::{self, Asked};
use super::pending::PendingConnections;
use super::sender::{self, Shared};
use crate::sys::raw::defer_accept;
use crate::sys::threads::{lock, spawn};

/// The most connections where it is not known how many files can be open.
const FEWEST: usize = 64;
/// The most handshakes at once, and those of one address: the name of the run can be seen in the network, and copied.
const HANDSHAKES: usize = 1024;
const HANDSHAKES_EACH: usize = 256;
/// Open files of a connection: its socket, twice, its waker, the events, the file, and one to spare.
const FILES_EACH: u64 = 6;
/// How often abandoned streams are looked for.
const TIDY: Duration = Duration::from_secs(30);
/// Pause after a refused connection, whose client may come again at once. It limits a hundred clients to 10,000
/// connections a second.
const PAUSE: Duration = Duration::from_millis(10);
/// Seconds for which the kernel holds back a connection without data.
const DEFERRED: i32 = 1;

struct Listener {
    certificate: PathBuf,
    tls: bool,
    /// The directories whose files other machines may have.
    directories: Vec<PathBuf>,
    shared: Shared,
    most: usize,
    /// Text for a reader when there are as many.
    busy: String,
    connections: AtomicUsize,
    /// The address of each handshake that goes on.
    handshakes: Mutex<Vec<IpAddr>>,
}

/// Listens at `address`, or, where that is empty, at the one under which this machine was reached by SSH, until this
/// process ends. Admits readers with the certificate that lies in the run directory then; with `tls` all that they are
/// told is inside TLS, else the handshake only. Files in `directories` may be had as archives.
///
/// # Errors
/// A message that says why not.
pub fn listen(address: &str, run_directory: &Path, tls: bool, directories: Vec<PathBuf>) -> Result<SocketAddr, String> {
    listen_with(affordable(), address, run_directory, tls, directories)
}

fn listen_with(
    (most, allowed): (usize, u64),
    address: &str,
    run_directory: &Path,
    tls: bool,
    directories: Vec<PathBuf>,
) -> Result<SocketAddr, String> {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let address = own_address(address, &connection)?;
    let cannot = |error: std::io::Error| format!("cannot listen at {address}: {error}");
    let socket = TcpListener::bind((address, 0)).map_err(cannot)?;
    let bound = socket.local_addr().map_err(cannot)?;
    socket.set_nonblocking(true).map_err(cannot)?;
    // As many as the kernel lets wait.
    let _ = nix::sys::socket::listen(&socket, Backlog::MAXCONN);
    let _ = defer_accept(&socket, DEFERRED);
    // A closed connection leaves nothing behind. An admitted one is set otherwise below.
    let _ = setsockopt(&socket, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 });
    let pending = PendingConnections::new(socket, most).map_err(|error| cannot(error.into()))?;
    let listener = Arc::new(Listener {
        certificate: run_directory.join("certificate.pem"),
        tls,
        directories,
        shared: Shared::new(run_directory.join("jobs")),
        most,
        busy: busy(most, allowed),
        connections: AtomicUsize::new(0),
        handshakes: Mutex::default(),
    });
    spawn("listener", move || listener.run(pending)).map_err(cannot)?;
    Ok(bound)
}

/// The address to listen at.
///
/// # Arguments
/// * `connection` - the addresses and ports of the SSH connection, as sshd(8) tells them
fn own_address(given: &str, connection: &str) -> Result<IpAddr, String> {
    if given.is_empty() {
        let reached = connection.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        reached.ok_or_else(|| "cannot listen: SSH_CONNECTION names no address of this machine".into())
    } else {
        given.parse().map_err(|_| format!("cannot listen: {given} is no IP address"))
    }
}

/// How many connections there can be, when half of the open files are left to other things, and how many files can be
/// open. A reader that is refused for a minute fails, so that no other limit is set to readers of this run.
fn affordable() -> (usize, u64) {
    let unknown = (FEWEST, FEWEST as u64 * 2 * FILES_EACH);
    getrlimit(Resource::RLIMIT_NOFILE).map_or(unknown, |(allowed, _)| ((allowed / 2 / FILES_EACH) as usize, allowed))
}

fn busy(most: usize, allowed: u64) -> String {
    let each = 2 * FILES_EACH;
    format!(
        "{most} other jobs read from there, and the limit of open files there, {allowed}, allows no more: raise the \
         limit (`ulimit -Hn`) to {each} for each job that reads at the same time"
    )
}

impl Listener {
    fn run(self: &Arc<Self>, mut pending: PendingConnections) {
        let mut doorkeeper = Doorkeeper::new(&self.certificate);
        loop {
            self.shared.streams.forget_abandoned();
            let (heard, more) = pending.wait(TIDY);
            let mut turned_away = false;
            for one in heard {
                let admitted = one.and_then(|(socket, hello)| {
                    doorkeeper.admit(&socket, &hello)?;
                    self.admit(socket, hello);
                    Ok(())
                });
                turned_away |= admitted.is_err();
            }
            if turned_away && !more {
                thread::sleep(PAUSE);
            }
        }
    }

    fn admit(self: &Arc<Self>, socket: TcpStream, hello: Hello) {
        let Ok(address) = socket.peer_addr() else { return };
        let Some(handshake) = Handshake::begin(self, origin(address.ip())) else { return };
        let _ = setsockopt(&socket, sockopt::Linger, &linger { l_onoff: 0, l_linger: 0 });
        let listener = self.clone();
        let _ = spawn("link", move || {
            let accepted = handshake::accept(socket, hello, &listener.certificate, listener.tls);
            drop(handshake);
            // Only now: strangers take no place of a reader.
            let slot = Slot::take(&listener);
            match accepted {
                Ok((mut channel, _)) if slot.is_none() => {
                    let _ = handshake::say(&mut channel, Kind::Busy, listener.busy.as_bytes());
                }
                Ok((channel, Asked::Stream(request))) => sender::serve(&listener.shared, channel, request),
                Ok((channel, Asked::Archive(path))) => archive::serve(&listener.directories, channel, &path),
                Err(_) => {}
            }
        });
    }
}

/// A handshake with a client of an address, as long as this is held.
struct Handshake(Arc<Listener>, IpAddr);

impl Handshake {
    /// Returns None when there are as many handshakes as there may be, in all or of the address.
    fn begin(listener: &Arc<Listener>, origin: IpAddr) -> Option<Self> {
        let mut going = lock(&listener.handshakes);
        // Also where there can be no reader, which is told in the answer.
        let are_few = going.len() < HANDSHAKES.min(listener.most.max(1));
        (are_few && going.iter().filter(|other| **other == origin).count() < HANDSHAKES_EACH).then(|| {
            going.push(origin);
            Self(listener.clone(), origin)
        })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut going = lock(&self.0.handshakes);
        if let Some(at) = going.iter().position(|other| *other == self.1) {
            going.swap_remove(at);
        }
    }
}

/// Reduces an address of IPv6 to its network: the owner of a network has all its addresses.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 64)).into(),
        address => address,
    }
}

/// One of the connections that there can be, as long as it is held.
struct Slot(Arc<Listener>);

impl Slot {
    fn take(listener: &Arc<Listener>) -> Option<Self> {
        let slot = Self(listener.clone());
        let before = listener.connections.fetch_add(1, Ordering::Relaxed);
        (before < listener.most).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::pipe;

    use crate::link::fetcher::{Fetcher, Orders, Times, TIMES};
    use crate::link::request::{Request, Wanted};
    use crate::link::tls::certificate_file;
    use crate::protocol::job::Link;
    use crate::streams::origin::Failure;

    #[test]
    fn one_address_has_few_handshakes_at_once_and_all_have_not_many() {
        let listener = Arc::new(Listener {
            certificate: PathBuf::new(),
            tls: false,
            directories: Vec::new(),
            shared: Shared::new(PathBuf::new()),
            most: usize::MAX,
            busy: String::new(),
            connections: AtomicUsize::new(0),
            handshakes: Mutex::default(),
        });
        let (stranger, reader) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut held: Vec<Handshake> =
            (0..HANDSHAKES_EACH).filter_map(|_| Handshake::begin(&listener, stranger)).collect();
        assert_eq!(held.len(), HANDSHAKES_EACH);
        assert!(Handshake::begin(&listener, stranger).is_none());
        assert!(Handshake::begin(&listener, reader).is_some());
        held.pop();
        assert!(Handshake::begin(&listener, stranger).is_some());
        held.clear();
        for last in 0.. {
            match Handshake::begin(&listener, [10, 0, 1, last].into()) {
                Some(handshake) => held.push(handshake),
                None => break,
            }
            let others = (1..HANDSHAKES_EACH).filter_map(|_| Handshake::begin(&listener, [10, 0, 1, last].into()));
            held.extend(others.collect::<Vec<_>>());
        }
        assert_eq!(held.len(), HANDSHAKES);
        assert!(Slot::take(&listener).is_some(), "readers are not counted with them");
        held.clear();
        assert!(listener.handshakes.lock().unwrap().is_empty());
    }

    #[test]
    fn a_reader_too_many_is_told_what_allows_how_many() {
        let directory = tempfile::tempdir().unwrap();
        let certificate = certificate_file(&directory, "certificate");
        let address = listen_with((0, 11), "127.0.0.1", directory.path(), false, Vec::new()).unwrap();
        let link = Link { address, job: "j".into(), certificate, tls: false };
        let wanted = Wanted::of(&link, "p", Path::new("/a"), None, false);
        let times = Times { patience: Duration::ZERO, ..TIMES };
        let (_source, sink) = pipe().unwrap();
        let mut fetcher = Fetcher {
            link,
            request: Request { wanted, offset: 0, part: false },
            sink,
            times,
            orders: Arc::new(Orders::new().unwrap()),
            progress: false,
            acknowledged: 0,
        };
        let Err(Failure::Producer(message)) = fetcher.fetch() else { panic!("it has read") };
        let expected =
            format!("cannot read /a from {address}: 0 other jobs read from there, and the limit of open files");
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains("11, allows no more: raise the limit (`ulimit -Hn`) to 12 for each job"), "{message}");
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

//! The handshake of a connection: each side shows that it knows the key of the run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{send, MsgFlags};

use super::authentication::{self, Authenticated, Authenticator, Hello};
use super::channel::Channel;
use super::credit::Credit;
use super::error::LinkError;
use super::frame::{expect, read_header, read_payload, record, Kind, Timed};
use super::request::Request;
use super::secret::{Key, Nonce, Purpose};
use super::tls::Identity;
use crate::sys::random::random;

/// How long it may take to connect, to agree on the keys of TLS, and then to be admitted.
const LIMIT: Duration = Duration::from_secs(5);

/// Connects to the `serve` at `address`, and makes sure, inside TLS or plain, that it, too, knows the key in the file
/// `key`.
pub fn connect(address: &SocketAddr, key: &Path, tls: bool) -> Result<Channel, LinkError> {
    let file = key;
    let key = Key::load(file).map_err(LinkError::Refused)?;
    let identity = tls.then(|| Identity::load(file)).transpose().map_err(LinkError::Refused)?;
    let wrong = || LinkError::Refused(format!("it has another key than {}", file.display()));
    let ours: Nonce = random()?;
    // All that takes time has been done: the hello comes with the connection.
    let hello = authentication::hello(&key, &ours);
    let socket = TcpStream::connect_timeout(address, LIMIT)?;
    let mut timed = Timed::new(&socket, LIMIT);
    timed.write_all(&hello)?;
    let theirs = nonce(&answer(&mut timed, Kind::Challenge, wrong)?)?;
    let mut channel = Channel::reader(socket, identity, LIMIT)?;
    let mut timed = channel.within(LIMIT);
    timed.write_all(&record(Kind::Proof, &key.proof(Purpose::Reader, &[&ours, &theirs])))?;
    let proof = answer(&mut timed, Kind::Welcome, wrong)?;
    if key.proves(Purpose::Sender, &[&ours, &theirs], &proof) {
        Ok(channel)
    } else {
        Err(wrong())
    }
}

/// Reads the record that has to come, or that the other side has another key.
fn answer(from: &mut impl Read, kind: Kind, wrong: impl Fn() -> LinkError) -> Result<Vec<u8>, LinkError> {
    let header = read_header(from)?;
    match header.kind {
        found if found == kind => read_payload(from, header),
        Kind::Refused => Err(wrong()),
        other => Err(LinkError::Broken(format!("{other:?} came instead of {kind:?}"))),
    }
}

/// Asks for a stream.
pub fn ask(channel: &mut Channel, request: &Request) -> Result<(), LinkError> {
    Ok(channel.within(LIMIT).write_all(&record(Kind::Request, &request.encode()))?)
}

/// Says how far the sender may go from now on.
pub fn grant(channel: &mut Channel, credit: Credit) -> Result<(), LinkError> {
    Ok(channel.within(LIMIT).write_all(&record(Kind::Credit, &credit.encode()))?)
}

/// Authenticates a reader by its hello, and tells one who has made it with another key, without waiting.
pub fn authenticate(by: &mut Authenticator, socket: &TcpStream, hello: &Hello) -> Result<Authenticated, LinkError> {
    let judged = by.authenticate(hello);
    if matches!(judged, Err(LinkError::Refused(_))) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = send(socket.as_raw_fd(), &record(Kind::Refused, b""), flags);
    }
    judged
}

/// Answers a reader that its hello has authenticated, which proves for this connection again that it knows the key, and
/// takes its request.
///
/// # Arguments
/// * `identity` - of this side, where the rest is to be said inside TLS
pub fn accept(
    socket: TcpStream,
    reader: &Authenticated,
    identity: Option<Identity>,
) -> Result<(Channel, Request), LinkError> {
    let (key, theirs) = (&reader.key, &reader.nonce);
    let ours: Nonce = random()?;
    Timed::new(&socket, LIMIT).write_all(&record(Kind::Challenge, &ours))?;
    let mut channel = Channel::sender(socket, identity, LIMIT)?;
    let mut timed = channel.within(LIMIT);
    let proof = expect(&mut timed, Kind::Proof)?;
    if !key.proves(Purpose::Reader, &[theirs, &ours], &proof) {
        timed.write_all(&record(Kind::Refused, b""))?;
        return Err(LinkError::Refused("a wrong key".into()));
    }
    timed.write_all(&record(Kind::Welcome, &key.proof(Purpose::Sender, &[theirs, &ours])))?;
    let request = Request::decode(&expect(&mut timed, Kind::Request)?)?;
    Ok((channel, request))
}

fn nonce(bytes: &[u8]) -> Result<Nonce, LinkError> {
    bytes.try_into().map_err(|_| LinkError::Broken("a nonce of another size".into()))
}

/// What the listener does, for one reader.
#[cfg(test)]
pub fn receive(socket: TcpStream, key: &Path) -> Result<(Channel, Request), LinkError> {
    let (mut partial, mut authenticator) = (authentication::HelloReader::new(), Authenticator::new(key));
    let hello = loop {
        socket.peek(&mut [0])?;
        if let Some(hello) = partial.read(&socket)? {
            break hello;
        }
    };
    let reader = authenticate(&mut authenticator, &socket, &hello)?;
    accept(socket, &reader, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    use crate::link::frame::MAGIC;
    use crate::link::request::Wanted;
    use crate::link::secret::{key_file, SIZE};

    fn request() -> Request {
        Request { wanted: Wanted::of_test(), offset: 3, part: false }
    }

    /// What both sides say when they have the keys in these files.
    fn meet(theirs: &Path, ours: &Path) -> (Result<(), LinkError>, Result<Request, LinkError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let admitted = receive(listener.accept().unwrap().0, ours);
                admitted.map(|(_channel, request)| request)
            });
            let client = connect(&address, theirs, false).and_then(|mut channel| ask(&mut channel, &request()));
            (client, server.join().unwrap())
        })
    }

    #[test]
    fn who_has_the_key_is_admitted() {
        let keys = tempfile::tempdir().unwrap();
        assert_eq!(meet(&key_file(&keys, "a"), &key_file(&keys, "a")), (Ok(()), Ok(request())));
    }

    #[test]
    fn who_has_another_key_is_not() {
        let keys = tempfile::tempdir().unwrap();
        let (client, server) = meet(&key_file(&keys, "a"), &key_file(&keys, "b"));
        assert!(matches!(client, Err(LinkError::Refused(_))), "{client:?}");
        assert!(matches!(server, Err(LinkError::Refused(_))), "{server:?}");
        // There is no key yet: that may change.
        let (client, server) = meet(&key_file(&keys, "a"), Path::new("/nowhere/key"));
        assert!(matches!(client, Err(LinkError::Broken(_))), "{client:?}");
        assert!(matches!(server, Err(LinkError::Broken(_))), "{server:?}");
    }

    /// A `serve` that does not know the key cannot feign that it does, not even with the reader's own proof.
    #[test]
    fn an_impostor_is_recognized() {
        let keys = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let impostor = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let hello = expect(&mut stream, Kind::Hello).unwrap();
            stream.write_all(&record(Kind::Challenge, &hello[MAGIC.len()..][..SIZE])).unwrap();
            let proof = expect(&mut stream, Kind::Proof).unwrap();
            stream.write_all(&record(Kind::Welcome, &proof)).unwrap();
            let _ = stream.read(&mut [0]);
        });
        assert!(matches!(connect(&address, &key_file(&keys, "a"), false), Err(LinkError::Refused(_))));
        impostor.join().unwrap();
    }
}

//! How two sides become sure of each other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::channel::Channel;
use super::frame::{expect, read_header, record, Kind, MAGIC};
use super::request::Request;
use super::secret::{random, Key, Nonce, Side, SIZE};
use super::tls::Identity;
use super::Trouble;

/// How long it may take to connect, to agree on the keys of TLS, and then to be admitted.
const LIMIT: Duration = Duration::from_secs(5);

/// Connects to the `serve` at `address`, inside TLS or plain, and makes sure that it, too, knows the key in the file
/// `key`.
pub fn connect(address: &SocketAddr, key: &Path, tls: bool) -> Result<Channel, Trouble> {
    let file = key;
    let key = Key::load(file).map_err(Trouble::Refused)?;
    let identity = tls.then(|| Identity::load(file)).transpose().map_err(Trouble::Refused)?;
    let mut channel = Channel::connect(address, identity, LIMIT)?;
    let mut timed = channel.within(LIMIT);
    let ours: Nonce = random()?;
    timed.write_all(&record(Kind::Hello, &[&MAGIC[..], &ours].concat()))?;
    let theirs = nonce(&expect(&mut timed, Kind::Challenge)?)?;
    timed.write_all(&record(Kind::Proof, &key.proof(Side::Reader, [&ours, &theirs])))?;
    let wrong = || Trouble::Refused(format!("it has another key than {}", file.display()));
    let mut proof = [0; SIZE];
    match read_header(&mut timed)?.kind {
        Kind::Welcome => timed.read_exact(&mut proof)?,
        Kind::Refused => return Err(wrong()),
        other => return Err(Trouble::Broken(format!("{other:?} came instead of Welcome"))),
    }
    if key.proves(Side::Sender, [&ours, &theirs], &proof) {
        Ok(channel)
    } else {
        Err(wrong())
    }
}

/// Asks for a stream.
pub fn ask(channel: &mut Channel, request: &Request) -> Result<(), Trouble> {
    Ok(channel.within(LIMIT).write_all(&record(Kind::Request, &request.encode()))?)
}

/// Hears what a stranger wants who shows, inside TLS or plain, that it knows the key in the file `key`. To one who does
/// not even speak our language nothing is said, but what TLS has for that.
///
/// # Arguments
/// * `spoke` - called when it has spoken our language
pub fn admit(socket: TcpStream, key: &Path, tls: bool, spoke: impl Fn()) -> Result<(Channel, Request), Trouble> {
    // For one who says nothing no file is read.
    socket.set_read_timeout(Some(LIMIT))?;
    socket.peek(&mut [0])?;
    let identity = tls.then(|| Identity::load(key)).transpose().map_err(Trouble::Broken)?;
    let mut channel = Channel::accept(socket, identity, LIMIT)?;
    let mut timed = channel.within(LIMIT);
    let hello = expect(&mut timed, Kind::Hello)?;
    let theirs = hello.strip_prefix(&MAGIC).ok_or_else(|| Trouble::Broken("another protocol".into()))?;
    let theirs = nonce(theirs)?;
    spoke();
    let key = Key::load(key).map_err(Trouble::Broken)?;
    let ours: Nonce = random()?;
    timed.write_all(&record(Kind::Challenge, &ours))?;
    let proof = expect(&mut timed, Kind::Proof)?;
    if !key.proves(Side::Reader, [&theirs, &ours], &proof) {
        timed.write_all(&record(Kind::Refused, b""))?;
        return Err(Trouble::Refused("a wrong key".into()));
    }
    timed.write_all(&record(Kind::Welcome, &key.proof(Side::Sender, [&theirs, &ours])))?;
    let request = Request::decode(&expect(&mut timed, Kind::Request)?)?;
    Ok((channel, request))
}

fn nonce(bytes: &[u8]) -> Result<Nonce, Trouble> {
    bytes.try_into().map_err(|_| Trouble::Broken("a nonce of another size".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    use crate::link::request::Wanted;
    use crate::verify::Verify;

    struct Keys(tempfile::TempDir);

    impl Keys {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, digit: &str) -> std::path::PathBuf {
            let path = self.0.path().join(digit);
            std::fs::write(&path, digit.repeat(2 * SIZE)).unwrap();
            path
        }
    }

    fn request() -> Request {
        let wanted =
            Wanted { stream: "s".into(), job: "j".into(), port: "p".into(), path: "/a".into(), verify: Verify::Full };
        Request { wanted, offset: 3 }
    }

    /// What both sides say when they have the keys in these files.
    fn meet(theirs: &Path, ours: &Path) -> (Result<(), Trouble>, Result<Request, Trouble>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let admitted = admit(listener.accept().unwrap().0, ours, false, || ());
                admitted.map(|(_channel, request)| request)
            });
            let client = connect(&address, theirs, false).and_then(|mut channel| ask(&mut channel, &request()));
            (client, server.join().unwrap())
        })
    }

    #[test]
    fn who_has_the_key_is_admitted() {
        let keys = Keys::new();
        assert_eq!(meet(&keys.file("a"), &keys.file("a")), (Ok(()), Ok(request())));
    }

    #[test]
    fn who_has_another_key_is_not() {
        let keys = Keys::new();
        let (client, server) = meet(&keys.file("a"), &keys.file("b"));
        assert!(matches!(client, Err(Trouble::Refused(_))), "{client:?}");
        assert!(matches!(server, Err(Trouble::Refused(_))), "{server:?}");
        // There is no key yet: that may change.
        let (client, server) = meet(&keys.file("a"), Path::new("/nowhere/key"));
        assert!(matches!(client, Err(Trouble::Broken(_))), "{client:?}");
        assert!(matches!(server, Err(Trouble::Broken(_))), "{server:?}");
    }

    /// A `serve` that does not know the key cannot feign that it does, not even with the reader's own proof.
    #[test]
    fn an_impostor_is_recognized() {
        let keys = Keys::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let impostor = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let hello = expect(&mut stream, Kind::Hello).unwrap();
            stream.write_all(&record(Kind::Challenge, &hello[MAGIC.len()..])).unwrap();
            let proof = expect(&mut stream, Kind::Proof).unwrap();
            stream.write_all(&record(Kind::Welcome, &proof)).unwrap();
            let _ = stream.read(&mut [0]);
        });
        assert!(matches!(connect(&address, &keys.file("a"), false), Err(Trouble::Refused(_))));
        impostor.join().unwrap();
    }
}

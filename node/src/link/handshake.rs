//! The handshake of a connection: TLS, in which each side shows the certificate of the run.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::client_hello::Hello;
use super::error::LinkError;
use super::frame::{read_header, read_payload, record, Kind};
use super::request::{decode_archive, Request};
use super::tls::Identity;

/// How long it may take to connect, to agree on the keys of TLS, and then to be admitted.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the `serve` at `address`, which has to have the same certificate.
///
/// # Arguments
/// * `certificate` - the file of the certificate of the run
/// * `tls` - whether TLS goes on after the handshake
pub fn connect(address: &SocketAddr, certificate: &Path, tls: bool) -> Result<Channel, LinkError> {
    // All that takes time has been done before: the hello comes with the connection.
    let connection = Identity::load(certificate).map_err(LinkError::Refused)?.reader();
    let connection = connection.map_err(|error| LinkError::Refused(format!("TLS: {error}")))?;
    Channel::new(TcpStream::connect_timeout(address, LIMIT)?, connection, tls, LIMIT)
}

/// Connects as `connect` does, and tries again for as long as `patience`: many may want to connect at the same time.
pub fn connect_patiently(
    address: &SocketAddr,
    certificate: &Path,
    tls: bool,
    patience: Duration,
) -> Result<Channel, LinkError> {
    let begin = Instant::now();
    loop {
        match connect(address, certificate, tls) {
            Err(LinkError::Broken(_)) if begin.elapsed() < patience => thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Asks for a stream.
pub fn ask(channel: &mut Channel, request: &Request) -> Result<(), LinkError> {
    Ok(channel.within(LIMIT).write_all(&record(Kind::Request, &request.encode()))?)
}

/// Says something while data come.
pub fn say(channel: &mut Channel, kind: Kind, payload: &[u8]) -> Result<(), LinkError> {
    Ok(channel.within(LIMIT).write_all(&record(kind, payload))?)
}

/// The request of a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Stream(Request),
    /// The archive of the file or directory at a path.
    Archive(PathBuf),
}

/// Answers a reader that has said `hello`, and takes its request. The other arguments are as for `connect`.
pub fn accept(socket: TcpStream, hello: Hello, certificate: &Path, tls: bool) -> Result<(Channel, Asked), LinkError> {
    let connection = Identity::load(certificate).map_err(LinkError::Broken)?.sender(hello.accepted());
    let connection = connection.map_err(|error| LinkError::Broken(format!("TLS: {error}")))?;
    let mut channel = Channel::new(socket, connection, tls, LIMIT)?;
    let mut from = channel.within(LIMIT);
    let header = read_header(&mut from)?;
    // Nothing is allotted for a record of another kind.
    let asked = match header.kind {
        Kind::Request => Asked::Stream(Request::decode(&read_payload(&mut from, header)?)?),
        Kind::Archive => Asked::Archive(decode_archive(&read_payload(&mut from, header)?)?),
        other => return Err(LinkError::Broken(format!("{other:?} came instead of a request"))),
    };
    Ok((channel, asked))
}

/// Accepts one reader, as the listener does.
#[cfg(test)]
pub fn receive(socket: TcpStream, certificate: &Path, tls: bool) -> Result<(Channel, Asked), LinkError> {
    use super::client_hello::{Doorkeeper, HelloReader};
    let mut reader = HelloReader::new();
    let hello = loop {
        socket.peek(&mut [0])?;
        if let Some(hello) = reader.read(&socket)? {
            break hello;
        }
    };
    Doorkeeper::new(certificate).admit(&socket, &hello)?;
    accept(socket, hello, certificate, tls)
}

/// The same for a reader of a stream.
#[cfg(test)]
pub fn receive_stream(socket: TcpStream, certificate: &Path, tls: bool) -> Result<(Channel, Request), LinkError> {
    match receive(socket, certificate, tls)? {
        (channel, Asked::Stream(request)) => Ok((channel, request)),
        (_, asked) => Err(LinkError::Broken(format!("{asked:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    use crate::link::request::Wanted;
    use crate::link::tls::certificate_file;

    fn request() -> Request {
        Request { wanted: Wanted::of_test(), offset: 3, part: false }
    }

    /// Lets two sides meet that have the certificates in these files.
    fn meet(theirs: &Path, ours: &Path, tls: [bool; 2]) -> (Result<(), LinkError>, Result<Request, LinkError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let admitted = receive_stream(listener.accept().unwrap().0, ours, tls[0]);
                admitted.map(|(_channel, request)| request)
            });
            let client = connect(&address, theirs, tls[1]).and_then(|mut channel| ask(&mut channel, &request()));
            (client, server.join().unwrap())
        })
    }

    #[test]
    fn a_member_of_the_run_is_admitted() {
        let directory = tempfile::tempdir().unwrap();
        let run = certificate_file(&directory, "a");
        for tls in [false, true] {
            assert_eq!(meet(&run, &run, [tls, tls]), (Ok(()), Ok(request())), "{tls}");
            let (_, server) = meet(&run, &run, [tls, !tls]);
            assert!(matches!(server, Err(LinkError::Broken(_))), "{server:?}");
        }
    }

    #[test]
    fn others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let [run, other] = ["a", "b"].map(|name| certificate_file(&directory, name));
        let (client, server) = meet(&run, &other, [false, false]);
        assert!(matches!(client, Err(LinkError::Refused(_))), "{client:?}");
        assert!(matches!(server, Err(LinkError::Refused(_))), "{server:?}");
        // There is no certificate yet: that may change.
        let (client, server) = meet(&run, Path::new("/nowhere/certificate.pem"), [false, false]);
        assert!(matches!(client, Err(LinkError::Broken(_))), "{client:?}");
        assert!(matches!(server, Err(LinkError::Broken(_))), "{server:?}");
    }
}

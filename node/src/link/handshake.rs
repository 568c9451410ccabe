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

/// Says something to the sender: the request, and more while data come.
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

//! Byte streams between machines: by TCP from `serve` on the producer's to `exec` on the consumer's.
//!
//! A connection tells when a stream has ended, and how. The end of the connection only tells that another one is
//! needed.

mod archive;
mod channel;
mod client_hello;
mod error;
mod fetcher;
mod frame;
mod handshake;
mod listener;
mod notifier;
mod outlet;
mod pending;
mod reader;
mod request;
mod sender;
mod streams;
mod tls;

use std::path::Path;
use std::time::Duration;

pub use self::archive::receive;
use self::error::LinkError;
pub use self::listener::listen;
pub use self::reader::Reader;

/// How long the connection to a `serve` is tried again.
const PATIENCE: Duration = Duration::from_secs(2);

/// `sfio-node reach`: checks whether a `serve` with the same certificate answers at `address`.
pub fn reach(address: &str, certificate: &Path) -> i32 {
    let try_it = || -> Result<(), LinkError> {
        let address = address.parse().map_err(|_| LinkError::Refused("has to be IP:PORT".into()))?;
        handshake::connect_patiently(&address, certificate, true, PATIENCE).map(drop)
    };
    match try_it() {
        Ok(()) => 0,
        Err(LinkError::Broken(message) | LinkError::Refused(message)) => {
            eprintln!("sfio-node: {address}: {message}");
            1
        }
    }
}

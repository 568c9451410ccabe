//! Byte streams between machines: by TCP from `serve` on the producer's to `exec` on the consumer's.
//!
//! A connection says when a stream has ended, and how; its own end says nothing, but that another one is needed.

mod channel;
mod fetcher;
mod frame;
mod greeting;
mod hello;
mod listener;
mod notifier;
mod reader;
mod request;
mod secret;
mod sender;
mod strangers;
mod streams;
mod tls;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub use self::listener::listen;
pub use self::reader::Reader;

/// Why a connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Another attempt may succeed.
    Broken(String),
    /// None will.
    Refused(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
        if let Some(refusal) = tls::refusal(&error) {
            return refusal;
        }
        Self::Broken(match error.kind() {
            WouldBlock | TimedOut => "nothing came in time".into(),
            UnexpectedEof => "the connection was closed".into(),
            _ => error.to_string(),
        })
    }
}

/// How long, and after what pauses, it is tried again whether a `serve` answers.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// `sfio-node reach`: whether a `serve` that knows the key answers at `address`, inside TLS or plain.
pub fn reach(address: &str, key: &Path, tls: bool) -> i32 {
    let try_it = || -> Result<(), Trouble> {
        let address = address.parse().map_err(|_| Trouble::Refused("has to be IP:PORT".into()))?;
        let begin = Instant::now();
        loop {
            match greeting::connect(&address, key, tls) {
                // There may be many who want in.
                Err(Trouble::Broken(_)) if begin.elapsed() < PATIENCE => thread::sleep(PAUSE),
                result => return result.map(drop),
            }
        }
    };
    match try_it() {
        Ok(()) => 0,
        Err(Trouble::Broken(message) | Trouble::Refused(message)) => {
            eprintln!("sfio-node: {address}: {message}");
            1
        }
    }
}

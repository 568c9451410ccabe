//! Why a connection of a link cannot go on.

use std::io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};

use rustls::{AlertDescription, Error as TlsError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Another attempt may succeed.
    Broken(String),
    /// Another attempt will fail, too.
    Refused(String),
}

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        let tls = error.get_ref().and_then(|error| error.downcast_ref());
        if let Some(TlsError::InvalidCertificate(_) | TlsError::AlertReceived(AlertDescription::UnrecognisedName)) = tls
        {
            return Self::Refused("it has another certificate than that of the run".into());
        }
        Self::Broken(match error.kind() {
            WouldBlock | TimedOut => "nothing came in time".into(),
            UnexpectedEof => "the connection was closed".into(),
            _ => error.to_string(),
        })
    }
}

//! The records of a link: a header of five bytes (kind, length in big-endian order), and a payload.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::error::LinkError;

/// The most bytes of one record of data.
pub const LARGEST_DATA: u32 = 1 << 20;
/// The most bytes of a record of text.
const LARGEST_TEXT: u32 = 1 << 16;

pub const HEADER: usize = 5;
/// A reader that needs the whole file says this instead of a number of bytes.
pub const WHOLE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The stream that the reader asks for, in JSON.
    Request = 1,
    Data,
    /// The end, with the size.
    Committed,
    /// There will be no end: why, in JSON.
    Failed,
    Keepalive,
    /// The last word of the reader: it has seen how the stream ended, or needs no more.
    Done,
    /// The part that is still to be compared, in JSON, for a reader that asks for it.
    Part,
    /// The file or directory that the reader asks for, in JSON.
    Archive,
    /// The word of the reader how many bytes its command has read. The producer may discard them.
    Taken,
    /// There are too many readers, in words.
    Busy,
}

/// How long their payloads can be.
const KINDS: [(Kind, RangeInclusive<u32>); 10] = [
    (Kind::Request, 2..=LARGEST_TEXT),
    (Kind::Data, 1..=LARGEST_DATA),
    (Kind::Committed, 8..=8),
    (Kind::Failed, 2..=LARGEST_TEXT),
    (Kind::Keepalive, 0..=0),
    (Kind::Done, 0..=0),
    (Kind::Part, 2..=LARGEST_TEXT),
    (Kind::Archive, 2..=LARGEST_TEXT),
    (Kind::Taken, 8..=8),
    (Kind::Busy, 1..=LARGEST_TEXT),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub length: u32,
}

impl Header {
    /// # Errors
    /// When there is no such kind, or it cannot be so long.
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, LinkError> {
        let [kind, length @ ..] = bytes;
        let length = u32::from_be_bytes(length);
        let known = KINDS.into_iter().find(|(known, lengths)| *known as u8 == kind && lengths.contains(&length));
        let bad = || LinkError::Broken(format!("a record of kind {kind} and {length} bytes is not of this protocol"));
        Ok(Self { kind: known.ok_or_else(bad)?.0, length })
    }

    pub fn bytes(self) -> [u8; HEADER] {
        let [a, b, c, d] = self.length.to_be_bytes();
        [self.kind as u8, a, b, c, d]
    }
}

/// A whole record.
pub fn record(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [&Header { kind, length: payload.len() as u32 }.bytes(), payload].concat()
}

pub fn read_header(from: &mut impl Read) -> Result<Header, LinkError> {
    let mut bytes = [0; HEADER];
    from.read_exact(&mut bytes)?;
    Header::parse(bytes)
}

/// The error of a record `Busy`: another attempt may find fewer readers.
pub fn busy(payload: &[u8]) -> LinkError {
    LinkError::Broken(String::from_utf8_lossy(payload).into_owned())
}

pub fn read_payload(from: &mut impl Read, header: Header) -> Result<Vec<u8>, LinkError> {
    let mut payload = vec![0; header.length as usize];
    from.read_exact(&mut payload)?;
    Ok(payload)
}

/// Takes the first record out of the received bytes. An incomplete record gives None.
///
/// # Errors
/// When the bytes are no record.
pub fn take_record(heard: &mut Vec<u8>) -> Result<Option<(Kind, Vec<u8>)>, LinkError> {
    let Some(header) = heard.first_chunk() else { return Ok(None) };
    let Header { kind, length } = Header::parse(*header)?;
    let end = HEADER + length as usize;
    Ok((heard.len() >= end).then(|| (kind, heard.drain(..end).skip(HEADER).collect())))
}

/// A connection that has to be done with something before `deadline`.
pub struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    pub fn new(stream: &'a TcpStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for (kind, lengths) in KINDS {
            for length in [*lengths.start(), *lengths.end()] {
                let header = Header { kind, length };
                assert_eq!(Header::parse(header.bytes()), Ok(header));
            }
        }
    }

    #[test]
    fn what_is_too_long_too_short_or_unknown_is_refused() {
        for (kind, lengths) in KINDS {
            for length in [lengths.start().wrapping_sub(1), lengths.end() + 1, u32::MAX] {
                assert!(Header::parse(Header { kind, length }.bytes()).is_err(), "{kind:?} {length}");
            }
        }
        for kind in [0, 11, 255, b'G'] {
            for length in [0, 8, 32, 40] {
                assert!(Header::parse([kind, 0, 0, 0, length]).is_err(), "{kind} {length}");
            }
        }
    }
}

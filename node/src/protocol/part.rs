//! A part of a file: a list of its pieces, and what the file was when it was cut. Data in, data out; no I/O.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::protocol::messages::FileIdentity as Identity;
use crate::protocol::messages::FilePart;
use crate::protocol::values::Digest;
pub use crate::protocol::values::Piece;
use crate::protocol::wording::counted;

const MOST_PIECES: usize = 64;
/// Longer than a tick of any kernel. Each kernel has 100 ticks a second or more.
const TICK: Duration = Duration::from_millis(12);

impl Identity {
    pub fn of(file: &Metadata) -> Self {
        let mtime = file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec());
        Self { device: Some(file.dev()), inode: file.ino(), size: file.size(), mtime }
    }

    /// Says that `now` is another file. None stands for the same file, which may have been written to.
    pub fn replaced(&self, now: &Self) -> Option<&'static str> {
        let other_device = matches!((self.device, now.device), (Some(then), Some(now)) if then != now);
        (other_device || self.inode != now.inode).then_some("was replaced after it was cut into parts")
    }

    /// The time after `now` (nanoseconds since the epoch) until each further write gives the file another time.
    /// Kernels before 6.13 take the time of their last tick.
    pub fn settles_in(&self, now: i64) -> Duration {
        let passed = u64::try_from(now.saturating_sub(self.mtime)).map(Duration::from_nanos);
        // A time in the future is by another clock.
        passed.map_or(Duration::ZERO, |passed| TICK.saturating_sub(passed))
    }

    /// Says how `now` differs from the file. None stands for the same file.
    pub fn difference(&self, now: &Self) -> Option<&'static str> {
        let changed = || {
            if self.size != now.size {
                Some("has another size than when it was cut into parts")
            } else if self.mtime != now.mtime {
                Some("was written after it was cut into parts")
            } else {
                None
            }
        };
        self.replaced(now).or_else(changed)
    }
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Absolute.
    pub file: PathBuf,
    pub identity: Identity,
    pub pieces: Vec<Piece>,
    /// The digest of the bytes in the file, if the file was still written when the part was cut.
    pub digest: Option<Digest>,
}

impl TryFrom<FilePart> for Part {
    type Error = String;

    fn try_from(FilePart { file, identity, pieces, digest }: FilePart) -> Result<Self, String> {
        check(&pieces, identity.size)?;
        Ok(Self { file, identity, pieces, digest })
    }
}

impl Part {
    pub fn size(&self) -> u64 {
        size(&self.pieces)
    }

    /// Says how `now` differs from the file of the part. None stands for a file that can be the same.
    pub fn difference(&self, now: &Identity) -> Option<&'static str> {
        if self.digest.is_some() {
            self.identity.replaced(now)
        } else {
            self.identity.difference(now)
        }
    }
}

/// The bytes of all pieces together.
pub fn size(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::length).fold(0, u64::saturating_add)
}

/// Whether pieces can be those of a part of a file of `size` bytes.
///
/// # Errors
/// A message that says which is wrong, and why.
pub fn check(pieces: &[Piece], size: u64) -> Result<(), String> {
    if pieces.len() > MOST_PIECES {
        return Err(format!("has {} pieces, and may have {MOST_PIECES}", pieces.len()));
    }
    for piece in pieces {
        match piece {
            Piece::Extent { offset, length } if offset.checked_add(*length).is_none_or(|end| end > size) => {
                let size = counted(size, "byte");
                return Err(format!("extent [{offset}, {length}] is outside the file, which has {size}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A place in a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    piece: usize,
    /// In that piece.
    within: u64,
    taken: u64,
}

/// The next bytes of a part.
#[derive(Debug, PartialEq, Eq)]
pub enum Ahead<'a> {
    Extent { offset: u64, length: u64 },
    Text(&'a [u8]),
}

impl Ahead<'_> {
    pub fn length(&self) -> u64 {
        match self {
            Self::Extent { length, .. } => *length,
            Self::Text(text) => text.len() as u64,
        }
    }
}

impl Cursor {
    /// Bytes that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The next bytes, up to the end of a piece. None stands for the end of the part.
    pub fn ahead<'a>(&self, pieces: &'a [Piece]) -> Option<Ahead<'a>> {
        Some(match pieces.get(self.piece..)?.iter().find(|piece| piece.length() > 0)? {
            // An empty piece is never begun, so that `within` is 0 where one is skipped.
            Piece::Extent { offset, length } => {
                Ahead::Extent { offset: offset + self.within, length: length - self.within }
            }
            Piece::Text(text) => Ahead::Text(&text[self.within as usize..]),
        })
    }

    /// Moves on by `count` bytes.
    pub fn advance(&mut self, pieces: &[Piece], count: u64) {
        self.piece += pieces[self.piece..].iter().take_while(|piece| piece.length() == 0).count();
        self.within += count;
        self.taken += count;
        if pieces.get(self.piece).is_some_and(|piece| self.within >= piece.length()) {
            self.piece += 1;
            self.within = 0;
        }
    }
}

/// Whether a part can have this name.
///
/// # Errors
/// A message that says why not.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("path is empty"),
        b"." | b".." => Err("path is no name of a file"),
        _ if name.contains(&b'/') => Err("path has a slash: it has to be a name"),
        _ if name.contains(&0) => Err("path has a NUL"),
        _ if name.len() > 255 => Err("path is longer than 255 bytes"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;

    fn pieces(text: &str) -> Result<Vec<Piece>, String> {
        json::read(text.as_bytes())
    }

    #[test]
    fn a_file_that_was_just_written_is_left_alone() {
        let file = Identity { device: None, inode: 1, size: 1, mtime: 1_000_000_000 };
        for (passed, expected) in [(0, 12), (5, 7), (11, 1), (12, 0), (5000, 0), (-1, 0), (-5000, 0)] {
            let found = file.settles_in(file.mtime + passed * 1_000_000);
            assert_eq!(found, Duration::from_millis(expected), "{passed}");
        }
        assert_eq!(Identity { mtime: i64::MIN, ..file }.settles_in(i64::MAX), Duration::ZERO);
    }

    #[test]
    fn extents_are_inside_the_file() {
        for (text, wrong) in [
            ("[]", None),
            ("[[0,100]]", None),
            ("[[100,0]]", None),
            ("[[5,5],[5,5]]", None),
            ("[[0,101]]", Some("extent [0, 101] is outside the file, which has 100 bytes")),
            ("[[0,1],[101,0]]", Some("extent [101, 0] is outside the file, which has 100 bytes")),
            ("[[18446744073709551615,1]]", Some("is outside the file")),
        ] {
            let found = check(&pieces(text).unwrap(), 100);
            assert_eq!(found.is_err(), wrong.is_some(), "{text}");
            assert!(found.err().unwrap_or_default().contains(wrong.unwrap_or_default()), "{text}");
        }
        let many = vec![Piece::Extent { offset: 0, length: 1 }; MOST_PIECES + 1];
        assert!(check(&many[1..], 1).is_ok());
        assert_eq!(check(&many, 1), Err("has 65 pieces, and may have 64".into()));
    }

    /// The bytes that a reader of `most` at a time gets from a file in which each byte is its offset.
    fn taken(pieces: &[Piece], most: u64) -> Vec<u8> {
        let (mut cursor, mut found) = (Cursor::default(), Vec::new());
        while let Some(ahead) = cursor.ahead(pieces) {
            let count = match ahead {
                Ahead::Extent { offset, length } => {
                    let count = length.min(most);
                    found.extend((offset..offset + count).map(|byte| byte as u8));
                    count
                }
                Ahead::Text(text) => {
                    let count = (text.len() as u64).min(most);
                    found.extend(&text[..count as usize]);
                    count
                }
            };
            assert!(count > 0);
            cursor.advance(pieces, count);
        }
        assert_eq!(cursor.taken(), found.len() as u64);
        found
    }

    #[test]
    fn a_cursor_gives_all_pieces_in_order() {
        for (text, expected) in [
            ("[]", &b""[..]),
            ("[[9,0]]", b""),
            ("[[2,3]]", &[2, 3, 4]),
            (r#"[[9,0],[2,3],[7,0],[8,0],"aGVsbG8K",[1,2],[1,2],[4,0]]"#, b"\x02\x03\x04hello\n\x01\x02\x01\x02"),
        ] {
            for most in [1, 2, 3, 4, 100] {
                assert_eq!(taken(&pieces(text).unwrap(), most), expected, "{text} {most}");
            }
        }
    }

    #[test]
    fn differences() {
        let then = Identity { device: Some(1), inode: 2, size: 3, mtime: 4 };
        for (now, word) in [
            (then, None),
            (Identity { device: None, ..then }, None),
            (Identity { device: Some(9), ..then }, Some("replaced")),
            (Identity { inode: 9, size: 9, ..then }, Some("replaced")),
            (Identity { size: 9, mtime: 9, ..then }, Some("size")),
            (Identity { mtime: 9, ..then }, Some("written")),
        ] {
            let found = then.difference(&now);
            assert!(found.is_some() == word.is_some() && found.unwrap_or_default().contains(word.unwrap_or_default()));
        }
        let read = |text: &str| json::read::<Identity>(text.as_bytes());
        assert_eq!(read(r#"{"device":1,"inode":2,"size":3,"mtime":4}"#), Ok(then));
        for none in ["", r#""device":null,"#] {
            assert_eq!(
                read(&format!(r#"{{{none}"inode":2,"size":3,"mtime":4}}"#)),
                Ok(Identity { device: None, ..then })
            );
        }
        assert!(read(r#"{"inode":2,"size":3}"#).unwrap_err().contains("missing field `mtime`"));
    }
}

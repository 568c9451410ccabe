//! The entries of a directory as getdents64(2) returns them. No effects.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// An entry: its name, inode number and type (`DT_…`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub number: u64,
    pub kind: u8,
}

/// Bytes before the name in `struct linux_dirent64`: number, next position, length, type.
const HEADER: usize = 8 + 8 + 2 + 1;
const ALIGNMENT: usize = 8;

/// Encodes entries from a position on, as many as fit.
///
/// The position of an entry is its index in the list, so that a directory can be rewound and sought in.
///
/// # Returns
/// The bytes, and the position after them. None: the next entry is larger than the buffer.
pub fn encode(entries: &[Entry], position: usize, capacity: usize) -> Option<(Vec<u8>, usize)> {
    let mut bytes = Vec::new();
    let mut next = position;
    for entry in entries.iter().skip(position) {
        let name = entry.name.as_bytes();
        let length = (HEADER + name.len() + 1).next_multiple_of(ALIGNMENT);
        if bytes.len() + length > capacity {
            break;
        }
        let end = bytes.len() + length;
        bytes.extend(entry.number.to_ne_bytes());
        bytes.extend((next as i64 + 1).to_ne_bytes());
        bytes.extend((length as u16).to_ne_bytes());
        bytes.push(entry.kind);
        bytes.extend(name);
        bytes.resize(end, 0);
        next += 1;
    }
    let nothing_fits = bytes.is_empty() && position < entries.len();
    (!nothing_fits).then_some((bytes, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.into(), number: 7, kind: 8 }
    }

    #[test]
    fn small_buffers() {
        let entries = [entry("a"), entry("b"), entry("c")];
        assert_eq!(encode(&entries, 0, 24).unwrap().1, 1);
        assert_eq!(encode(&entries, 1, 50).unwrap().1, 3);
        assert_eq!(encode(&entries, 0, 23), None);
        assert_eq!(encode(&entries, 3, 4096).unwrap(), (Vec::new(), 3));
        assert_eq!(encode(&entries, 9, 4096).unwrap(), (Vec::new(), 9));
    }
}

//! `/etc/ld.so.cache`, where the dynamic loader of glibc finds libraries by their names.

use std::collections::HashMap;
use std::path::PathBuf;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use memchr::memmem;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// Returns the paths of each library, by its name, in the order of the cache. Empty if the cache is not understood.
pub fn read(content: &[u8]) -> HashMap<Vec<u8>, Vec<PathBuf>> {
    let mut found: HashMap<Vec<u8>, Vec<PathBuf>> = HashMap::new();
    // Older caches have another table of the same libraries before this one.
    let Some(begin) = memmem::find(content, MAGIC) else { return found };
    let content = &content[begin..];
    let count = number(content, MAGIC.len()).unwrap_or(0);
    for entry in content.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY).take(count) {
        let text = |at| number(entry, at).and_then(|offset| string(content, offset));
        if let (Some(name), Some(path)) = (text(4), text(8)) {
            found.entry(name.to_vec()).or_default().push(OsStr::from_bytes(path).into());
        }
    }
    found
}

/// Reads a number in the byte order of this machine, which has made the cache.
fn number(content: &[u8], at: usize) -> Option<usize> {
    let bytes = content.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_ne_bytes(bytes.try_into().ok()?)).ok()
}

fn string(content: &[u8], at: usize) -> Option<&[u8]> {
    let rest = content.get(at..)?;
    Some(&rest[..memchr::memchr(0, rest)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(before: &[u8]) -> Vec<u8> {
        let mut new = [MAGIC, &2u32.to_ne_bytes(), &[0; HEADER - MAGIC.len() - 4]].concat();
        let strings = u32::try_from(HEADER + 2 * ENTRY).unwrap();
        for (name, path) in [(0, 5), (0, 15)] {
            for field in [0, strings + name, strings + path, 0, 0, 0] {
                new.extend(field.to_ne_bytes());
            }
        }
        new.extend(b"liba\0/lib/liba\0/usr/liba\0");
        [before, &new].concat()
    }

    #[test]
    fn libraries_have_their_paths_in_order() {
        for before in [b"".as_slice(), b"ld.so-1.7.0\0\0\0\0\0"] {
            let found = read(&cache(before));
            assert_eq!(found[b"liba".as_slice()], ["/lib/liba", "/usr/liba"].map(PathBuf::from));
        }
    }

    #[test]
    fn one_that_is_cut_anywhere_has_no_more_than_is_there() {
        let whole = cache(b"");
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).values().flatten().count() <= 2);
        }
    }
}

//! Recognizes compressed files by their first bytes.

/// The first bytes of a file that are needed.
pub const START: usize = 16;

/// Returns why a file has no visible lines, if so.
///
/// # Arguments
/// * `start` - the first bytes of the file, with zeros behind its end
pub fn compressed(start: [u8; START]) -> Option<&'static str> {
    // RFC 1952; a block of BGZF has an extra field "BC" (SAM specification, 4.1).
    let is_bgzf = start.starts_with(&[0x1f, 0x8b, 8]) && start[3] & 4 != 0 && &start[12..14] == b"BC";
    let magic: [&[u8]; 4] = [&[0x1f, 0x8b], b"BZh", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]];
    match magic.iter().any(|magic| start.starts_with(magic)) {
        true if is_bgzf => Some("is compressed (BGZF), and cannot be cut into records: decompress it"),
        true => Some("is compressed, and cannot be cut into records: decompress it"),
        false => None,
    }
}

//! What a compressed file begins with.

/// So many first bytes tell it.
pub const START: usize = 16;

/// Why there are no lines to be seen, if so.
///
/// # Arguments
/// * `start` - of the file, with zeros behind its end
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

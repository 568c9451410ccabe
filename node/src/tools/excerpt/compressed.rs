//! The first bytes of a file compressed by gzip (RFC 1952), or by bgzip, which makes many small members (SAM/BAM format
//! specification, section 4.1).

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;

use flate2::read::{GzDecoder, MultiGzDecoder};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

/// The most bytes that are searched for the end of a line.
pub const LONGEST_LINE: u64 = 1 << 20;

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Flag of a header: there is an extra field.
const EXTRA: u8 = 4;
/// Offset of the extra field in a header.
const FIXED: usize = 12;
/// Offset of the size of a block, minus one, in a header of bgzip.
const SIZE: usize = FIXED + 4;
/// The block that bgzip puts at the end of each file.
const LAST_BLOCK: [u8; 28] = *b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";
/// The most decompressed bytes for each compressed byte.
const MOST_TIMES: u64 = 64;

/// Copies the first bytes of a file, so that they can be decompressed to their end.
///
/// # Returns
/// False if the file is not compressed in this way, or its first bytes contain nothing to decompress. Bytes may have
/// been written even then.
pub fn copy(from: &File, to: &mut File, bytes: u64) -> io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    if !is_there(from.read_exact_at(&mut magic, 0))? || magic != MAGIC {
        return Ok(false);
    }
    match last_block(from, bytes)? {
        Some((_, 0)) => Ok(false),
        Some((begin, end)) => {
            let mut block = vec![0; (end - begin) as usize];
            from.read_exact_at(&mut block, begin)?;
            io::copy(&mut from.take(begin), to)?;
            to.write_all(&to_end_of_line(block)?)?;
            to.write_all(&LAST_BLOCK)?;
            Ok(true)
        }
        None => again(from, to, bytes),
    }
}

/// Content of a place where a block of bgzip may begin.
pub enum Block {
    /// Too little for a block, or nothing.
    End,
    /// A block, up to this place.
    Until(u64),
    /// Something else.
    Other,
}

/// Looks for a block of bgzip.
pub fn block_at(from: &File, at: u64) -> io::Result<Block> {
    let mut header = [0; SIZE + 2];
    if !is_there(from.read_exact_at(&mut header, at))? {
        return Ok(Block::End);
    }
    // All known programs that make such files write this field first.
    let is_block = header.starts_with(&MAGIC) && header[3] & EXTRA != 0 && header[FIXED..].starts_with(b"BC\x02\0");
    let end = at + u64::from(u16::from_le_bytes([header[SIZE], header[SIZE + 1]])) + 1;
    Ok(if is_block { Block::Until(end) } else { Block::Other })
}

/// Returns where the last whole block of bgzip in the first bytes begins and ends. None if bgzip has not made the file.
fn last_block(from: &File, bytes: u64) -> io::Result<Option<(u64, u64)>> {
    let (mut begin, mut end) = (0, 0);
    loop {
        match block_at(from, end)? {
            Block::End => return Ok((end > 0).then_some((begin, end))),
            Block::Other => return Ok(None),
            Block::Until(next) if next > bytes => return Ok(Some((begin, end))),
            Block::Until(next) => (begin, end) = (end, next),
        }
    }
}

/// Cuts a block of text at the end of its last line. Other blocks stay: their records mostly end with the block.
fn to_end_of_line(block: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(&*block).read_to_end(&mut text)?;
    let is_text = !text.contains(&0);
    match text.iter().rposition(|byte| *byte == b'\n').filter(|_| is_text) {
        Some(at) if at + 1 < text.len() => compressed(&text[..=at]),
        _ => Ok(block),
    }
}

/// Makes a block of bgzip.
fn compressed(text: &[u8]) -> io::Result<Vec<u8>> {
    let header = GzBuilder::new().extra(*b"BC\x02\0\0\0");
    let mut encoder = header.write(Vec::new(), Compression::default());
    encoder.write_all(text)?;
    let mut block = encoder.finish()?;
    let size = u16::try_from(block.len() - 1).map_err(|_| io::Error::other("a block that is too large"))?;
    block[SIZE..SIZE + 2].copy_from_slice(&size.to_le_bytes());
    Ok(block)
}

/// Compresses again what the first bytes contain, up to the end of a line if there is one.
fn again(mut from: &File, to: &mut File, bytes: u64) -> io::Result<bool> {
    let mut decompressed = |length: u64| -> io::Result<_> {
        from.rewind()?;
        Ok(Partial(MultiGzDecoder::new(BufReader::new(from.take(bytes)))).take(length))
    };
    let most = MOST_TIMES.saturating_mul(bytes);
    let (length, line) = last_line(&mut decompressed(most)?)?;
    let length = if length - line < LONGEST_LINE && line > 0 { line } else { length };
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut decompressed(length)?, &mut encoder)?;
    encoder.finish()?;
    Ok(length > 0)
}

/// Returns the number of bytes, and where the last line ends. 0 if no line ends.
fn last_line(of: &mut impl Read) -> io::Result<(u64, u64)> {
    let (mut length, mut line) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = of.read(&mut buffer)?;
        if got == 0 {
            return Ok((length, line));
        }
        if let Some(at) = memchr::memrchr(b'\n', &buffer[..got]) {
            line = length + at as u64 + 1;
        }
        length += got as u64;
    }
}

/// A reader that takes a premature end for the end.
struct Partial<R>(R);

impl<R: Read> Read for Partial<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

fn is_there(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the excerpt of a file. None if the file is not compressed in this way.
    fn excerpt(content: &[u8], bytes: u64) -> Option<Vec<u8>> {
        let directory = tempfile::tempdir().unwrap();
        let (of, to) = (directory.path().join("of"), directory.path().join("to"));
        fs::write(&of, content).unwrap();
        let mut made = File::create_new(&to).unwrap();
        copy(&File::open(&of).unwrap(), &mut made, bytes).unwrap().then(|| fs::read(&to).unwrap())
    }

    fn decompressed(content: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        MultiGzDecoder::new(content).read_to_end(&mut found).unwrap();
        found
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn lines() -> Vec<u8> {
        (0..100_000_u64)
            .map(|line| format!("{}\n", line.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect::<String>()
            .into()
    }

    #[test]
    fn gzip_ends_where_a_line_ends() {
        let content = lines();
        let whole = gzip(&content);
        let two = [gzip(&content[..1000]), gzip(&content[1000..])].concat();
        for file in [whole, two] {
            let made = excerpt(&file, 100_000).unwrap();
            assert!((50_000..150_000).contains(&made.len()), "{}", made.len());
            let found = decompressed(&made);
            assert!(content.starts_with(&found) && found.ends_with(b"\n") && found.len() > 100_000);
        }
    }

    #[test]
    fn what_has_no_lines_ends_somewhere() {
        let content: Vec<u8> = lines().into_iter().filter(|byte| *byte != b'\n').collect();
        let found = decompressed(&excerpt(&gzip(&content), 100_000).unwrap());
        assert!(content.starts_with(&found) && found.len() > 100_000);
    }

    #[test]
    fn bgzip_has_whole_blocks_and_whole_lines() {
        let content = lines();
        let blocks: Vec<Vec<u8>> = content.chunks(10_001).map(|chunk| compressed(chunk).unwrap()).collect();
        let file = [blocks.concat(), LAST_BLOCK.to_vec()].concat();
        let bytes = (blocks[0].len() + blocks[1].len() + 100) as u64;
        let made = excerpt(&file, bytes).unwrap();
        assert!(made.starts_with(&blocks[0]) && made.ends_with(&LAST_BLOCK));
        let found = decompressed(&made);
        assert!(content.starts_with(&found) && found.ends_with(b"\n"));
        assert!((19_900..=20_002).contains(&found.len()), "{}", found.len());
        let all = excerpt(&file, file.len() as u64).unwrap();
        assert_eq!(decompressed(&all), content);
    }

    #[test]
    fn blocks_that_are_no_text_stay_as_they_are() {
        let blocks = [b"one\0\ntwo", b"3\nthree\0"].map(|content| compressed(content).unwrap());
        let made = excerpt(&blocks.concat(), blocks[0].len() as u64).unwrap();
        assert_eq!(made, [&*blocks[0], &LAST_BLOCK].concat());
    }

    #[test]
    fn what_cannot_be_cut_so() {
        for content in [&b""[..], b"text", b"\x1f\x8b", b"\x1f\x8b\x08 and no more", b"\x1f\x8b\x09 another method"] {
            assert_eq!(excerpt(content, 9), None, "{content:?}");
        }
        let block = compressed(b"a block").unwrap();
        assert_eq!(excerpt(&block, block.len() as u64 - 1), None);
        assert_eq!(excerpt(&gzip(b"a line\n"), 3), None);
    }
}

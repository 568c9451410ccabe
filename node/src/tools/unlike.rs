//! Lists the lines in which two files differ, for a person to judge. The files are text, or text compressed by bgzip.
//!
//! Files of bgzip (SAM/BAM format specification, section 4.1) are compared block by block. Blocks with the same content
//! must have the same bytes. Other blocks must be equally long when decompressed, so that only their content differs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::from_utf8;

use flate2::read::GzDecoder;
use serde::Serialize;

use crate::protocol::json;

/// How a block of bgzip begins: as a member of gzip with an extra field. Known programs write the size of the block,
/// minus one, into this field first.
const BLOCK: [u8; 3] = [0x1f, 0x8b, 8];
const EXTRA: u8 = 4;
const FIELD: usize = 12;
const SIZE: usize = FIELD + 4;

const DONE: i32 = 0;
const DIFFERENT: i32 = 1;
const FAILED: i32 = 2;

/// The most lines that are listed.
const MOST_LINES: usize = 64;
/// The most bytes of a line. Longer lines are cut into several.
const LONGEST_LINE: u64 = 1 << 13;

/// A line that differs.
#[derive(Debug, PartialEq, Serialize)]
struct Line {
    /// Place in the first file: the block, and the number of the line in the block.
    at: String,
    one: String,
    other: String,
}

/// `sfio-node unlike`: prints the lines as JSON, or says in words what else differs.
pub fn run(one: &Path, other: &Path) -> i32 {
    let open = |path: &Path| File::open(path).map_err(|error| format!("{}: {error}", path.display()));
    match open(one).and_then(|one| Ok((one, open(other)?))) {
        Err(message) => {
            eprintln!("sfio-node: unlike: {message}");
            FAILED
        }
        Ok((one, other)) => match unlike(&one, &other) {
            Ok(Ok(lines)) => {
                println!("{}", json::write(&lines));
                DONE
            }
            Ok(Err(how)) => {
                println!("{how}");
                DIFFERENT
            }
            Err(error) => {
                eprintln!("sfio-node: unlike: {error}");
                FAILED
            }
        },
    }
}

/// The lines that differ, or what else does.
type Unlike = Result<Vec<Line>, &'static str>;

fn unlike(one: &File, other: &File) -> io::Result<Unlike> {
    let mut lines = Vec::new();
    if !matches!(block_at(one, 0)?, Block::Until(_)) || !matches!(block_at(other, 0)?, Block::Until(_)) {
        if one.metadata()?.len() != other.metadata()?.len() {
            return Ok(Err("their sizes differ"));
        }
        let how = compare(0, &mut BufReader::new(one), &mut BufReader::new(other), &mut lines)?;
        return Ok(how.map_or(Ok(lines), Err));
    }
    let (mut at, mut its) = (0, 0);
    loop {
        match (block_at(one, at)?, block_at(other, its)?) {
            (Block::End, Block::End) => {
                let same = bytes(one, at, one.metadata()?.len())? == bytes(other, its, other.metadata()?.len())?;
                return Ok(if same { Ok(lines) } else { Err("they end in something else") });
            }
            (Block::Until(end), Block::Until(its_end)) => {
                let (block, its_block) = (bytes(one, at, end)?, bytes(other, its, its_end)?);
                if block != its_block {
                    let (text, its_text) = (content(&block)?, content(&its_block)?);
                    if text.len() != its_text.len() {
                        return Ok(Err("their blocks have other sizes"));
                    }
                    if text == its_text {
                        return Ok(Err("the same content is compressed in another way"));
                    }
                    let how = compare(at, &mut Cursor::new(text), &mut Cursor::new(its_text), &mut lines)?;
                    if let Some(how) = how {
                        return Ok(Err(how));
                    }
                }
                (at, its) = (end, its_end);
            }
            _ => return Ok(Err("they have other numbers of blocks")),
        }
    }
}

/// Content of a place where a block of bgzip may begin.
enum Block {
    /// Too little for a block, or nothing.
    End,
    /// A block, up to this place.
    Until(u64),
    /// Something else.
    Other,
}

fn block_at(file: &File, at: u64) -> io::Result<Block> {
    let mut header = [0; SIZE + 2];
    match file.read_exact_at(&mut header, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Block::End),
        read => read?,
    }
    let is_block = header.starts_with(&BLOCK) && header[3] & EXTRA != 0 && header[FIELD..].starts_with(b"BC\x02\0");
    let end = at + u64::from(u16::from_le_bytes([header[SIZE], header[SIZE + 1]])) + 1;
    Ok(if is_block { Block::Until(end) } else { Block::Other })
}

fn bytes(file: &File, begin: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; (end - begin) as usize];
    file.read_exact_at(&mut block, begin)?;
    Ok(block)
}

fn content(block: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(block).read_to_end(&mut text)?;
    Ok(text)
}

/// Compares two contents line by line.
///
/// # Returns
/// What differs apart from lines that can be listed.
fn compare(
    block: u64,
    one: &mut impl BufRead,
    other: &mut impl BufRead,
    lines: &mut Vec<Line>,
) -> io::Result<Option<&'static str>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 1_u64.. {
        ours.clear();
        theirs.clear();
        one.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut ours)?;
        other.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut theirs)?;
        if ours.is_empty() && theirs.is_empty() {
            break;
        }
        if ours == theirs {
            continue;
        }
        if lines.len() == MOST_LINES {
            return Ok(Some("too many lines differ"));
        }
        let (Ok(one), Ok(other)) = (from_utf8(&ours), from_utf8(&theirs)) else {
            return Ok(Some("something that is no text differs"));
        };
        lines.push(Line { at: format!("{block}:{number}"), one: one.into(), other: other.into() });
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use flate2::write::GzEncoder;
    use flate2::{Compression, GzBuilder};

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    fn found(one: &[u8], other: &[u8]) -> Result<Vec<(String, String, String)>, &'static str> {
        let lines = unlike(&file(one), &file(other)).unwrap()?;
        Ok(lines.into_iter().map(|line| (line.at, line.one, line.other)).collect())
    }

    fn line(at: &str, one: &str, other: &str) -> (String, String, String) {
        (at.into(), one.into(), other.into())
    }

    fn block(text: &[u8], level: Compression) -> Vec<u8> {
        let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().extra(*b"BC\x02\0\0\0").write(Vec::new(), level);
        encoder.write_all(text).unwrap();
        let mut block = encoder.finish().unwrap();
        let size = u16::try_from(block.len() - 1).unwrap().to_le_bytes();
        block[16..18].copy_from_slice(&size);
        block
    }

    fn blocks(texts: &[&[u8]]) -> Vec<u8> {
        texts.iter().flat_map(|text| block(text, Compression::default())).collect()
    }

    #[test]
    fn lines_of_text_that_differ_are_told() {
        assert_eq!(found(b"a\nb\nc", b"a\nb\nc"), Ok(vec![]));
        assert_eq!(found(b"a\nb\nc", b"x\nb\ny"), Ok(vec![line("0:1", "a\n", "x\n"), line("0:3", "c", "y")]));
        assert_eq!(found(b"a\n", b"a"), Err("their sizes differ"));
        assert_eq!(found(b"\xff\n", b"\xfe\n"), Err("something that is no text differs"));
        assert_eq!(found(&b"a\n".repeat(99), &b"b\n".repeat(99)), Err("too many lines differ"));
        assert_eq!(found(b"a\nb\n", b"a\n\nb"), Ok(vec![line("0:2", "b\n", "\n"), line("0:3", "", "b")]));
    }

    #[test]
    fn a_long_line_is_told_in_parts() {
        let long = vec![b'a'; LONGEST_LINE as usize + 3];
        let mut other = long.clone();
        other[LONGEST_LINE as usize + 1] = b'b';
        assert_eq!(found(&long, &other), Ok(vec![line("0:2", "aaa", "aba")]));
    }

    #[test]
    fn blocks_of_bgzip_are_compared_by_what_is_in_them() {
        let one = blocks(&[b"date 1\nx\n", b"data\n", b""]);
        assert_eq!(
            found(&one, &blocks(&[b"date 2\nx\n", b"data\n", b""])),
            Ok(vec![line("0:1", "date 1\n", "date 2\n")])
        );
        assert_eq!(found(&one, &one), Ok(vec![]));
        assert_eq!(found(&one, &blocks(&[b"date 1\nx\n", b"data\n"])), Err("they have other numbers of blocks"));
        assert_eq!(found(&one, &blocks(&[b"date 10\nx\n", b"data\n", b""])), Err("their blocks have other sizes"));
        let mut stored = block(b"date 1\nx\n", Compression::none());
        stored.extend(blocks(&[b"data\n", b""]));
        assert_eq!(found(&one, &stored), Err("the same content is compressed in another way"));
        assert_eq!(found(&one, b"date 1\nx\n"), Err("their sizes differ"));
    }
}

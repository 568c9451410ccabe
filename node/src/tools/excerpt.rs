//! `sfio-node excerpt`: makes a file of the first bytes of another one, which is as complete as that.

mod compressed;

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Serialize;

use self::compressed::LONGEST_LINE;
pub use self::compressed::{block_at, Block};
use crate::protocol::json;

/// Exit codes.
const MADE: i32 = 0;
const FAILED: i32 = 1;

#[derive(Serialize)]
struct Made {
    bytes: u64,
}

/// Makes the file, and prints how many bytes it has.
///
/// # Arguments
/// * `of` - the whole file
/// * `to` - the new file, which must not exist
/// * `bytes` - the most bytes of the whole file that are used
///
/// The new file ends where a line ends, if one does shortly before `bytes`. If the whole file is compressed by gzip or
/// bgzip, the new one is, too, and can be read to its end.
pub fn run(of: &Path, to: &Path, bytes: u64) -> i32 {
    let said = make(of, to, bytes).and_then(|bytes| writeln!(io::stdout(), "{}", json::write(&Made { bytes })));
    match said {
        Ok(()) => MADE,
        Err(error) => {
            eprintln!("{}: no file with its first bytes can be made: {error}", of.display());
            FAILED
        }
    }
}

fn make(of: &Path, to: &Path, bytes: u64) -> io::Result<u64> {
    let mut from = File::open(of)?;
    let mode = from.metadata()?.permissions();
    let mut made = File::options().read(true).write(true).create_new(true).open(to)?;
    if !compressed::copy(&from, &mut made, bytes)? {
        from.rewind()?;
        made.set_len(0)?;
        made.rewind()?;
        let copied = io::copy(&mut from.take(bytes), &mut made)?;
        made.set_len(last_line(&made, copied)?.unwrap_or(copied))?;
    }
    fs::set_permissions(to, mode)?;
    Ok(made.metadata()?.len())
}

/// Returns where the last whole line of a file ends. None if no line ends in the bytes that are searched.
fn last_line(file: &File, length: u64) -> io::Result<Option<u64>> {
    let begin = length.saturating_sub(LONGEST_LINE);
    let mut end = vec![0; (length - begin) as usize];
    file.read_exact_at(&mut end, begin)?;
    Ok(end.iter().rposition(|byte| *byte == b'\n').map(|at| begin + at as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_where_a_line_ends() {
        let directory = tempfile::tempdir().unwrap();
        let (of, to) = (directory.path().join("of"), directory.path().join("to"));
        for (content, bytes, expected) in [
            ("one\ntwo\nthree\n", 10, "one\ntwo\n"),
            ("one\ntwo\nthree\n", 8, "one\ntwo\n"),
            ("one\ntwo\nthree\n", 7, "one\n"),
            ("one\ntwo\nthree", 99, "one\ntwo\n"),
            ("no line", 4, "no l"),
            ("", 4, ""),
        ] {
            fs::write(&of, content).unwrap();
            let _ = fs::remove_file(&to);
            assert_eq!(make(&of, &to, bytes).unwrap(), expected.len() as u64);
            assert_eq!(fs::read_to_string(&to).unwrap(), expected);
        }
        assert!(make(&of, &to, 1).is_err(), "what is there stays");
    }

    #[test]
    fn a_line_is_not_looked_for_too_far_away() {
        let directory = tempfile::tempdir().unwrap();
        let (of, to) = (directory.path().join("of"), directory.path().join("to"));
        let mut content = b"line\n".to_vec();
        content.resize(3 << 20, 0);
        fs::write(&of, &content).unwrap();
        assert_eq!(make(&of, &to, 2 << 20).unwrap(), 2 << 20);
    }
}

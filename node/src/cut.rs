//! `sfio-node cut`: prints where a rule cuts a file into parts, or compares these parts with those that a split has
//! written.
//!
//! The output is that of a split that knows `SFIO_PARTS`.

mod compare;
mod cuts;
mod flow;
mod propose;
mod rule;
mod scan;
mod told;
mod walk;

use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use self::compare::{Compared, Comparison};
use self::propose::Written;
use self::rule::Rule;
use self::told::Found;
use self::walk::walk;
use crate::protocol::json::{self, ByteString};
use crate::protocol::part::Piece;
use crate::streams::announced_parts::VARIABLE;

/// Exit codes: all parts were printed, or are the same; something is different; neither can be known.
const DONE: i32 = 0;
const DIFFERENT: i32 = 1;
const FAILED: i32 = 2;

/// Cuts the file `of`.
///
/// # Arguments
/// * `compare` - the directory of the parts that a split has written
pub fn run(of: &Path, rule: &str, compare: Option<&Path>) -> i32 {
    let done =
        Rule::read(rule.as_bytes()).map_err(|message| format!("--rule: {message}")).and_then(|rule| match compare {
            Some(directory) => show(Comparison::new(of, directory)?.run(&rule)?),
            None => say(of, &rule).map(|()| DONE),
        });
    done.unwrap_or_else(|message| {
        eprintln!("sfio-node: cut: {message}");
        FAILED
    })
}

/// `sfio-node propose`: prints a rule by which a split may have cut a file, if there is one.
///
/// # Arguments
/// * `directory`, `names`, `first`, `count` - the parts that the split has written
pub fn propose(of: &Path, directory: &Path, names: &OsStr, first: u64, count: u64) -> i32 {
    match Written::new(of, directory, names, first, count).and_then(|written| written.propose()) {
        Ok(Some(proposal)) => {
            println!("{}", json::write(&proposal));
            DONE
        }
        Ok(None) => DIFFERENT,
        Err(message) => {
            eprintln!("sfio-node: propose: {message}");
            FAILED
        }
    }
}

/// Prints the compared parts as `say` does, or the difference.
fn show(compared: Compared) -> Result<i32, String> {
    let mut output = BufWriter::new(io::stdout().lock());
    let (written, code) = match compared {
        Compared::Same(parts, records) => {
            let written = parts.into_iter().try_for_each(|part| write(&mut output, part));
            (written.and_then(|()| write_records(&mut output, records)), DONE)
        }
        Compared::Different(difference) => (writeln!(output, "{difference}"), DIFFERENT),
    };
    written.and_then(|()| output.flush()).map(|()| code).map_err(cannot_say)
}

/// Prints a line for each part as soon as it is known.
fn say(of: &Path, rule: &Rule) -> Result<(), String> {
    let file = env::var_os(VARIABLE);
    let output: Box<dyn Write> = match &file {
        Some(path) => {
            let opened = OpenOptions::new().append(true).open(path);
            Box::new(opened.map_err(|error| format!("{VARIABLE}: {}: {error}", Path::new(path).display()))?)
        }
        None => Box::new(io::stdout()),
    };
    let mut output = BufWriter::new(output);
    let mut written = Ok(());
    let records = walk(&open(of)?, of, rule, &mut |part| match part {
        Some(part) => {
            written = write(&mut output, part);
            written.is_ok()
        }
        // Readers need not wait for parts that are known.
        None => {
            written = output.flush();
            written.is_ok()
        }
    })?;
    written.and_then(|()| output.flush()).map_err(cannot_say)?;
    // The count does not belong to the parts, which have other readers.
    write_records(&mut io::stdout().lock(), records).map_err(cannot_say)
}

fn write_records(output: &mut impl Write, records: Option<u64>) -> io::Result<()> {
    records.map_or(Ok(()), |records| writeln!(output, "{{\"records\":{records}}}"))
}

fn write(output: &mut impl Write, part: Found) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        path: ByteString<std::ffi::OsString>,
        extents: &'a [Piece],
    }
    let line = Line { path: ByteString(part.name), extents: &part.pieces };
    writeln!(output, "{}", json::write(&line))
}

fn cannot_say(error: io::Error) -> String {
    format!("cannot say a part: {error}")
}

fn open(of: &Path) -> Result<File, String> {
    File::open(of).map_err(|error| format!("{}: {error}", of.display()))
}

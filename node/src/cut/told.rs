//! Reports what is found while a file is cut. No I/O.

use std::ffi::OsString;

use super::cuts::Cuts;
use super::rule::Rule;
use crate::protocol::part::Piece;

/// Bytes that are read at once from front to back.
pub const BLOCK: usize = 1 << 20;

/// A part as it is reported.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub name: OsString,
    pub pieces: Vec<Piece>,
}

/// Receives a part, or None if the next part will take some time. Returns false to end the cut.
pub type Tell<'a> = dyn FnMut(Option<Found>) -> bool + 'a;

pub struct Told<'a, 'b> {
    pub rule: &'a Rule,
    tell: &'a mut Tell<'b>,
    /// Length of the header.
    pub header: u64,
    /// Number of parts reported.
    number: u64,
    /// Number of records found. Complete only if the whole file is read.
    pub records: u64,
    pub ended: bool,
}

impl<'a, 'b> Told<'a, 'b> {
    pub fn new(rule: &'a Rule, tell: &'a mut Tell<'b>) -> Self {
        Self { rule, tell, header: 0, number: 0, records: 0, ended: false }
    }

    /// Reports a part: the header and these bytes.
    pub fn found(&mut self, start: u64, end: u64) {
        let extents = [(0, self.header), (start, end - start)].map(|(offset, length)| Piece::Extent { offset, length });
        let pieces = extents.into_iter().filter(|piece| piece.length() > 0).collect();
        let found = Found { name: self.rule.names.of(self.number), pieces };
        self.number += 1;
        self.ended = self.ended || !(self.tell)(Some(found));
    }

    /// Takes the beginning of a record.
    pub fn record(&mut self, cuts: &mut Cuts, start: u64) {
        self.records += 1;
        cuts.record(start, |start, end| self.found(start, end));
    }

    /// Says that the next part will take some time.
    pub fn waits(&mut self) {
        self.ended = self.ended || !(self.tell)(None);
    }
}

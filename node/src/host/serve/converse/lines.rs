//! Lines out of bytes that come in pieces.

/// The longest line, without its newline.
pub const LONGEST: usize = 32 << 20;

/// Gives each complete line once; a torn one is held until its newline comes.
#[derive(Debug, Default)]
pub struct Lines {
    torn: Vec<u8>,
    /// The rest of a line that is too long is coming.
    skips: bool,
}

/// More than `LONGEST`: nothing of it was kept.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// The lines that these bytes complete, without their newlines.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Result<Vec<u8>, TooLong>> {
        let mut lines = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.extend(piece);
            if pieces.peek().is_some() {
                let line = std::mem::take(&mut self.torn);
                lines.push(if std::mem::take(&mut self.skips) { Err(TooLong) } else { Ok(line) });
            }
        }
        lines
    }

    fn extend(&mut self, piece: &[u8]) {
        self.skips |= self.torn.len() + piece.len() > LONGEST;
        if self.skips {
            self.torn = Vec::new();
        } else {
            self.torn.extend(piece);
        }
    }
}

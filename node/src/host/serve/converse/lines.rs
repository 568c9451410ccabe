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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_lines_wait() {
        let mut lines = Lines::default();
        for (bytes, expected) in [
            ("a\nb", vec!["a"]),
            ("", vec![]),
            ("c", vec![]),
            ("\n", vec!["bc"]),
            ("\n\nd\u{ff}\n", vec!["", "", "d\u{ff}"]),
            ("e", vec![]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|line| Ok(line.as_bytes().to_vec())).collect();
            assert_eq!(lines.take(bytes.as_bytes()), expected, "{bytes}");
        }
    }

    #[test]
    fn of_what_is_too_long_nothing_is_kept() {
        let piece = vec![b'x'; 1 << 16];
        for (more, expected) in [(0, Ok(LONGEST)), (1, Err(TooLong)), (3 * LONGEST, Err(TooLong))] {
            let mut lines = Lines::default();
            let mut left = LONGEST + more;
            while left > 0 {
                let count = left.min(piece.len());
                assert_eq!(lines.take(&piece[..count]), []);
                assert!(lines.torn.capacity() <= 2 * LONGEST);
                left -= count;
            }
            let found: Vec<_> = lines.take(b"\na\n").into_iter().map(|line| line.map(|line| line.len())).collect();
            assert_eq!(found, [expected, Ok(1)]);
        }
    }
}

//! Feeds a complete file as a slow producer would write it: in small, odd pieces at first, each when the one before
//! was read. A reader that takes a short read for the end of the file is found in this way.

use std::time::{Duration, Instant};

/// Bytes of each piece; then all that there is.
const PIECES: [u64; 9] = [1, 1, 7, 4_095, 1, 511, 65_537, 3, 32_768];
/// Time between two pieces in which the reader finds nothing.
const PAUSE: Duration = Duration::from_millis(8);
/// How often is looked whether a piece was read.
const LOOK: Duration = Duration::from_millis(2);

/// When the next piece may be fed, and how much it is.
#[derive(Debug)]
pub struct Stutter {
    pieces: &'static [u64],
    /// Bytes of the first of them that were fed.
    fed: u64,
    /// The reader has not taken all that it was given, as far as is known.
    is_read: bool,
    pub until: Instant,
}

impl Stutter {
    pub fn new() -> Self {
        Self { pieces: &PIECES, fed: 0, is_read: true, until: Instant::now() }
    }

    /// Returns how many bytes may be fed now. Before `until` it returns None.
    ///
    /// # Arguments
    /// * `unread` - bytes that the reader was given, and has not taken
    /// * `has_more` - bytes are left to feed. Otherwise the end is given when the reader has taken all, so that it is
    ///   known whether it has
    pub fn next(&mut self, unread: u64, has_more: bool, now: Instant) -> Option<u64> {
        if !has_more && unread > 0 {
            self.until = now + LOOK;
            return None;
        }
        let Some(piece) = self.pieces.first() else { return Some(u64::MAX) };
        if unread > 0 {
            (self.is_read, self.until) = (false, now + LOOK);
            return None;
        }
        if !self.is_read {
            (self.is_read, self.until) = (true, now + PAUSE);
        }
        (now >= self.until).then(|| piece - self.fed)
    }

    pub fn fed(&mut self, bytes: u64) {
        let Some(piece) = self.pieces.first().filter(|_| bytes > 0) else { return };
        self.is_read = false;
        self.fed += bytes;
        if self.fed >= *piece {
            (self.pieces, self.fed) = (&self.pieces[1..], 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_waits_until_the_one_before_was_read_and_a_little_longer() {
        let mut stutter = Stutter::new();
        let mut now = Instant::now();
        let [all @ .., last] = PIECES;
        for piece in all {
            assert_eq!(stutter.next(0, true, now), Some(piece));
            stutter.fed(piece);
            assert_eq!(stutter.next(piece, true, now), None);
            now = stutter.until;
            assert_eq!(stutter.next(1, true, now), None, "not all of it was read");
            assert_eq!(stutter.next(0, true, now), None, "its reader has to find nothing for a moment");
            now = stutter.until;
        }
        assert_eq!(stutter.next(0, true, now), Some(last));
        stutter.fed(last);
        assert_eq!(stutter.next(last, true, now), Some(u64::MAX), "from then on nobody is waited for");
    }

    #[test]
    fn a_piece_that_does_not_fit_is_fed_in_several() {
        let mut stutter = Stutter { pieces: &[10, 5], ..Stutter::new() };
        let now = stutter.until;
        assert_eq!(stutter.next(0, true, now), Some(10));
        stutter.fed(4);
        assert_eq!(stutter.next(0, true, now), None);
        assert_eq!(stutter.next(0, true, stutter.until), Some(6));
        stutter.fed(0);
        assert_eq!(stutter.next(0, true, stutter.until), Some(6));
        stutter.fed(6);
        assert_eq!((stutter.next(0, true, now), stutter.next(0, true, stutter.until)), (None, Some(5)));
    }
}

//! Sets of bytes of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        let met: Vec<(u64, u64)> =
            self.0.range(..=end).rev().map(|(from, to)| (*from, *to)).take_while(|(_, to)| *to >= start).collect();
        for (from, to) in met {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// The parts of a range that are in the set, in order.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..=range.start).next_back().map_or(range.start, |(from, _)| *from);
        let met = self.0.range(before..range.end.max(before));
        let cut = met.map(|(from, to)| (*from).max(range.start)..(*to).min(range.end));
        cut.filter(|cut| cut.start < cut.end).collect()
    }

    pub fn remove(&mut self, range: &Range<u64>) {
        for part in self.within(range) {
            let Some((from, to)) = self.0.range(..=part.start).next_back().map(|(from, to)| (*from, *to)) else {
                continue;
            };
            self.0.remove(&from);
            self.insert(from..part.start);
            self.insert(part.end..to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_random::Random;

    #[test]
    fn as_a_set_of_bytes() {
        let (mut ranges, mut bytes, mut random) = (Ranges::default(), [false; 64], Random::new(7));
        for _ in 0..20_000 {
            let start = random.below(64);
            let range = start..start + random.below(65 - start);
            let told = range.start as usize..range.end as usize;
            match random.below(3) {
                0 => {
                    ranges.insert(range);
                    bytes[told].fill(true);
                }
                1 => {
                    ranges.remove(&range);
                    bytes[told].fill(false);
                }
                _ => {
                    let found: Vec<usize> =
                        ranges.within(&range).into_iter().flatten().map(|byte| byte as usize).collect();
                    let expected: Vec<usize> = told.filter(|byte| bytes[*byte]).collect();
                    assert_eq!(found, expected);
                }
            }
            let all: Vec<(u64, u64)> = ranges.0.iter().map(|(from, to)| (*from, *to)).collect();
            assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0) && all.iter().all(|(from, to)| from < to));
        }
    }
}

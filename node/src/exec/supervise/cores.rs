//! How many of its cores a job needs, from what the job has recently used and waited for.
//!
//! A greater need is reported at once, a smaller one only when fewer cores were enough for a while.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(500);
/// Time for which fewer cores must be enough.
const WHILE: Duration = Duration::from_secs(2);
/// Part of a core that counts as none: a job that only looks at a clock or writes a block now and then is waiting.
const SLACK: f64 = 0.25;

/// The need of a job. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Cores {
    most: u32,
    told: u32,
    /// The need in the time before each of these moments.
    recent: VecDeque<(Duration, u32)>,
}

impl Cores {
    /// Starts with the need of all `most` cores, until fewer were enough.
    pub fn new(most: u32, now: Duration) -> Self {
        Self { most, told: most, recent: VecDeque::from([(now, most)]) }
    }

    /// Records the need since the last look, and returns the number of cores needed if it has changed.
    ///
    /// # Arguments
    /// * `wanted` - mean number of processors that the job had or waited for; None: all its cores count as needed
    pub fn look(&mut self, now: Duration, wanted: Option<f64>) -> Option<u32> {
        // A job that waits for a device would wait longer beside other users of the device. (`as` turns negative
        // numbers into 0.)
        let needed = wanted.map_or(self.most, |wanted| ((wanted - SLACK).ceil() as u32).min(self.most));
        self.recent.push_back((now, needed));
        self.recent.retain(|(at, _)| *at + WHILE > now);
        let needed = self.recent.iter().map(|(_, needed)| *needed).max().unwrap_or(self.most);
        (std::mem::replace(&mut self.told, needed) != needed).then_some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_random::Random;

    /// Returns the reported needs, and after how many looks, of a job that wants this much before each look.
    fn told(most: u32, wanted: &[f64]) -> Vec<(usize, u32)> {
        let mut cores = Cores::new(most, Duration::ZERO);
        let look = |(index, wanted): (usize, &f64)| {
            let number = index + 1;
            Some((number, cores.look(LOOK * number as u32, Some(*wanted))?))
        };
        wanted.iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn who_waits_needs_none_after_a_while() {
        assert_eq!(told(1, &[0.0; 3]), []);
        assert_eq!(told(1, &[0.0; 20]), [(4, 0)]);
        assert_eq!(told(1, &[0.2; 20]), [(4, 0)]);
        assert_eq!(told(1, &[0.3; 20]), []);
        assert_eq!(told(4, &[1.1; 20]), [(4, 1)]);
        assert_eq!(told(4, &[1.3; 20]), [(4, 2)]);
        assert_eq!(told(4, &[9.0; 20]), []);
    }

    #[test]
    fn who_goes_on_needs_them_at_once() {
        let wanted = [vec![0.0; 7], vec![1.0], vec![0.0; 20]].concat();
        assert_eq!(told(1, &wanted), [(4, 0), (8, 1), (12, 0)]);
        let wanted = [vec![0.0; 7], vec![2.0, 4.0], vec![1.0; 20]].concat();
        assert_eq!(told(4, &wanted), [(4, 0), (8, 2), (9, 4), (13, 1)]);
    }

    #[test]
    fn who_waits_for_a_device_needs_all() {
        let mut cores = Cores::new(3, Duration::ZERO);
        assert_eq!((1..9).find_map(|number| cores.look(LOOK * number, Some(0.0))), Some(0));
        assert_eq!(cores.look(LOOK * 9, None), Some(3));
        assert_eq!((10..19).filter_map(|number| cores.look(LOOK * number, None)).next(), None);
    }

    #[test]
    fn it_is_never_less_than_what_was_wanted_lately() {
        let mut random = Random::new(7);
        for most in 1..6 {
            let (mut cores, mut told, mut now, mut news) = (Cores::new(most, Duration::ZERO), most, Duration::ZERO, 0);
            let mut wanted: Vec<(Duration, u32)> = vec![(now, most)];
            for _ in 0..500 {
                now += LOOK + Duration::from_millis(random.below(2000));
                let whole = random.below(u64::from(most) * 2) as u32 * u32::from(random.below(4) == 0);
                let found = cores.look(now, Some(f64::from(whole)));
                assert_ne!(found, Some(told));
                news += u32::from(found.is_some());
                told = found.unwrap_or(told);
                wanted.push((now, whole.min(most)));
                let lately = wanted.iter().filter(|(at, _)| *at + WHILE > now).map(|(_, wanted)| *wanted);
                assert_eq!(told, lately.max().unwrap());
            }
            assert!(news > 0);
        }
    }
}

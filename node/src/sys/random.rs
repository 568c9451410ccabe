//! Unpredictable random bytes.

use std::fs::File;
use std::io::{self, Read};

pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn they_are_fresh() {
        assert_ne!(super::random::<32>().unwrap(), super::random::<32>().unwrap());
    }
}

//! The FIFO in the run directory that tells whether `serve` lives on this kernel: `serve` holds its write end.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;

use crate::sys::remote_file;

/// Opens the FIFO of a `serve` that lives; its end says that `serve` is gone.
///
/// # Errors
/// A message that names the FIFO.
pub fn open(run_directory: &Path) -> Result<File, String> {
    let path = run_directory.join("alive");
    let gone = |why: &str| format!("serve is gone: {}: {why}", path.display());
    let alive = remote_file::open(&path).map_err(|error| gone(&error.to_string()))?;
    // poll reports a hang-up only for a writer that was there after this end was opened; read knows.
    match nix::unistd::read(&alive, &mut [0]) {
        Err(Errno::EAGAIN) => Ok(alive),
        _ => Err(gone("nobody holds it")),
    }
}

/// Whether there is certainly no `serve` on this kernel.
pub fn is_gone(run_directory: &Path) -> bool {
    match remote_file::open(&run_directory.join("alive")) {
        Ok(alive) => nix::unistd::read(&alive, &mut [0]) == Ok(0),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// `sfio-node reach --run`: whether the `serve` of a run directory lives on this kernel, and this user may see it.
pub fn reach(run_directory: &Path) -> i32 {
    match open(run_directory) {
        Ok(_) => 0,
        Err(message) => {
            eprintln!("sfio-node: {message}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs::OpenOptions;

    #[test]
    fn only_a_writer_says_that_it_lives() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        assert_eq!(reach(run), 1, "nothing is there");
        mkfifo(&run.join("alive"), Mode::S_IRWXU).unwrap();
        let message = open(run).unwrap_err();
        assert!(message.starts_with("serve is gone: ") && message.ends_with("/alive: nobody holds it"), "{message}");
        let writer = OpenOptions::new().read(true).write(true).open(run.join("alive")).unwrap();
        assert_eq!((reach(run), is_gone(run)), (0, false));
        drop(writer);
        assert_eq!((reach(run), is_gone(run)), (1, true), "it was there");
        std::fs::remove_file(run.join("alive")).unwrap();
        assert!(is_gone(run), "there is nothing");
        std::fs::write(run.join("alive"), "text").unwrap();
        assert_eq!((reach(run), is_gone(run)), (1, false), "a file");
    }
}

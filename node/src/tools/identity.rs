//! `sfio-node identity`: prints which file a path is here, and checks whether it is the same file as elsewhere.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::protocol::json::{self, ByteString};
use crate::protocol::messages::FoundFile;
use crate::protocol::part::Identity;
use crate::sys::remote_file;

/// Exit codes: the file exists, and is the one asked for; it does not, or is not; neither can be known.
const FOUND: i32 = 0;
const OTHER: i32 = 1;
const FAILED: i32 = 2;

/// Prints the real path of a file, and its identity.
///
/// # Arguments
/// * `is` - the identity that the file should have, in JSON
pub fn run(of: &Path, is: Option<&str>) -> i32 {
    let wanted: Option<Identity> = match is.map(|text| json::read(text.as_bytes())).transpose() {
        Ok(wanted) => wanted,
        Err(message) => {
            eprintln!("sfio-node: identity: --is: {message}");
            return FAILED;
        }
    };
    let said = look(of, wanted.as_ref())
        .and_then(|text| writeln!(io::stdout(), "{text}").map_err(|error| format!("cannot be said: {error}")));
    match said {
        Ok(()) => FOUND,
        Err(message) => {
            eprintln!("{}: {message}", of.display());
            OTHER
        }
    }
}

fn look(of: &Path, wanted: Option<&Identity>) -> Result<String, String> {
    // The file is opened, because it may exist and be unreadable, and because a network file system may remember an
    // older one.
    let file = remote_file::open(of).map_err(|error| error.to_string())?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("is no regular file".into());
    }
    let identity = Identity::of(&found);
    if let Some(how) = wanted.and_then(|wanted| wanted.difference(&identity)) {
        return Err(how.into());
    }
    let path = fs::canonicalize(of).map_err(|error| error.to_string())?;
    Ok(json::write(&FoundFile { path: ByteString(&path), identity: &identity }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_known_by_its_identity() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&file, "content").unwrap();
        symlink("a", &link).unwrap();
        let identity = Identity::of(&fs::metadata(&file).unwrap());
        let elsewhere = Identity { device: None, ..identity };
        let said = look(&link, Some(&elsewhere)).unwrap();
        let real = fs::canonicalize(&file).unwrap();
        assert!(said.starts_with(&format!("{{\"path\":\"{}\",\"identity\":{{", real.display())), "{said}");
        assert!(said.ends_with(&format!("\"mtime\":{}}}}}", identity.mtime)), "{said}");
        let other = Identity { size: 8, ..elsewhere };
        assert!(look(&link, Some(&other)).unwrap_err().contains("has another size"));
        assert!(look(directory.path(), None).unwrap_err().contains("no regular file"));
        assert!(look(&directory.path().join("c"), None).is_err());
        assert_eq!(run(&file, Some("{}")), FAILED);
    }
}

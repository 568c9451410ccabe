//! Finds out whether what a job has made refers to one of its inputs. Such an input has to stay, as a whole file.

use std::env;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;

use crate::sys::symbolic_links;

/// The file in which a command may say itself what its outputs are.
const OUTPUTS: &str = "cwl.output.json";

/// Whether an output of this job may be the file at `place`: a symbolic link in the first directory of the job leads
/// there, or the command has named the path.
pub fn refer_to(place: &Path) -> bool {
    env::current_dir().is_ok_and(|directory| found_in(&directory, place))
}

fn found_in(directory: &Path, place: &Path) -> bool {
    symbolic_links::lead_to(directory, place) || is_named(&directory.join(OUTPUTS), place)
}

fn is_named(outputs: &Path, place: &Path) -> bool {
    let text = || fs::metadata(outputs).ok().filter(|found| found.is_file()).and_then(|_| fs::read(outputs).ok());
    text().is_some_and(|text| memmem::find(&text, place.as_os_str().as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_refers_to_an_input() {
        let directory = tempfile::tempdir().unwrap();
        let [work, place] = ["work", "place"].map(|name| directory.path().join(name));
        fs::create_dir_all(work.join("deep")).unwrap();
        fs::write(&place, "").unwrap();
        assert!(!found_in(&work, &place));
        for (text, expected) in [(format!("{{\"path\": \"{}\"}}", place.display()), true), ("{}".into(), false)] {
            fs::write(work.join(OUTPUTS), text).unwrap();
            assert_eq!(found_in(&work, &place), expected);
        }
        symlink(&place, work.join("deep/link")).unwrap();
        assert!(found_in(&work, &place));
    }
}

//! Patterns as `glob` of Python has them, by which StreamFlow finds outputs: `*`, `?`, `[..]` and `[!..]` match neither `/` nor a
//! leading dot; nothing else is special. `streamflow_io/hints/globs.py` is the same; both are tested with `tests/globs.json`.
//!
//! Matching is done on code points; a byte that is not UTF-8 is a code point of its own (U+DC80..U+DCFF).

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A pattern for a relative path; `.` is the pattern without components, which matches the directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    components: Vec<Vec<Element>>,
    text: String,
}

impl Display for Pattern {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Pattern {
    /// Reads a pattern relative to `root`; an absolute one has to be below `root`.
    ///
    /// # Errors
    /// A message when the pattern leaves `root`.
    pub fn new(text: &Path, root: &Path) -> Result<Self, String> {
        let outside = || format!("glob {text:?} leaves {root:?}");
        let relative = if text.is_absolute() { text.strip_prefix(root).map_err(|_| outside())? } else { text };
        let read = |component| match component {
            Component::Normal(name) => Ok(Element::all_of(&code_points(name))),
            _ => Err(outside()),
        };
        let named = relative.components().filter(|component| *component != Component::CurDir);
        Ok(Self { components: named.map(read).collect::<Result<_, _>>()?, text: relative.display().to_string() })
    }

    pub fn matches(&self, path: &Path) -> bool {
        let names = names(path);
        names.len() == self.components.len() && self.agrees(&names)
    }

    /// Like `matches`, but a pattern of one component is compared with the last one of `path`.
    pub fn matches_anywhere(&self, path: &Path) -> bool {
        match (self.components.as_slice(), path.file_name()) {
            ([component], Some(name)) => matches_name(component, &code_points(name)),
            _ => self.matches(path),
        }
    }

    /// The rest of `path` below the directory that this pattern matches; None when it is not below it.
    pub fn below<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let names = names(path);
        if names.len() <= self.components.len() || !self.agrees(&names) {
            return None;
        }
        let mut rest = path.components();
        rest.by_ref().take(self.components.len()).for_each(drop);
        Some(rest.as_path())
    }

    /// Whether something that matches can lie below the directory `path`.
    pub fn leads_through(&self, path: &Path) -> bool {
        let names = names(path);
        names.len() < self.components.len() && self.agrees(&names)
    }

    fn agrees(&self, names: &[&OsStr]) -> bool {
        self.components.iter().zip(names).all(|(component, name)| matches_name(component, &code_points(name)))
    }
}

fn names(path: &Path) -> Vec<&OsStr> {
    path.iter().filter(|name| *name != ".").collect()
}

fn code_points(name: &OsStr) -> Vec<u32> {
    let mut points = Vec::new();
    for chunk in name.as_bytes().utf8_chunks() {
        points.extend(chunk.valid().chars().map(u32::from));
        points.extend(chunk.invalid().iter().map(|byte| 0xDC00 + u32::from(*byte)));
    }
    points
}

/// An element of one name in a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Star,
    Any,
    One(u32),
    Members { negated: bool, ranges: Vec<(u32, u32)> },
}

impl Element {
    /// Reads the pattern of one name, once: names are many.
    fn all_of(pattern: &[u32]) -> Vec<Self> {
        let mut elements = Vec::new();
        let (mut at, mut closed) = (0, true);
        while at < pattern.len() {
            if pattern[at] == point('[') && closed {
                // Where one bracket is not closed, none after it is.
                if let Some((members, length)) = Self::members(&pattern[at..]) {
                    elements.push(members);
                    at += length;
                    continue;
                }
                closed = false;
            }
            match pattern[at] {
                // Several stars are as good as one.
                star if star == point('*') && elements.last() == Some(&Self::Star) => {}
                star if star == point('*') => elements.push(Self::Star),
                any if any == point('?') => elements.push(Self::Any),
                one => elements.push(Self::One(one)),
            }
            at += 1;
        }
        elements
    }

    /// The bracket expression at the start of `pattern`, and its length; None when it is not closed.
    fn members(pattern: &[u32]) -> Option<(Self, usize)> {
        let negated = pattern.get(1) == Some(&point('!'));
        let start = if negated { 2 } else { 1 };
        let end = pattern.iter().skip(start + 1).position(|p| *p == point(']'))? + start + 1;
        let members = &pattern[start..end];
        let (mut at, mut ranges) = (0, Vec::new());
        while at < members.len() {
            if at + 2 < members.len() && members[at + 1] == point('-') {
                ranges.push((members[at], members[at + 2]));
                at += 3;
            } else {
                ranges.push((members[at], members[at]));
                at += 1;
            }
        }
        Some((Self::Members { negated, ranges }, end + 1))
    }

    fn matches(&self, one: u32) -> bool {
        match self {
            Self::Star | Self::Any => true,
            Self::One(own) => *own == one,
            Self::Members { negated, ranges } => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&&one)) != *negated
            }
        }
    }
}

const fn point(character: char) -> u32 {
    character as u32
}

/// Greedy matching with one point of return, the last star: no more steps than the name is long, for each element.
fn matches_name(pattern: &[Element], name: &[u32]) -> bool {
    if name.first() == Some(&point('.')) && pattern.first() != Some(&Element::One(point('.'))) {
        return false;
    }
    let (mut at, mut read) = (0, 0);
    let mut retry = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(Element::Star) => {
                at += 1;
                retry = Some((at, read));
            }
            Some(element) if element.matches(name[read]) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else { return false };
                at = after_star;
                read = from + 1;
                retry = Some((after_star, from + 1));
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == Element::Star)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json::{self, ByteString};
    use std::path::PathBuf;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(Path::new(text), Path::new("/root")).unwrap()
    }

    #[test]
    fn globs_that_python_reads_alike() {
        type Case = (ByteString<PathBuf>, ByteString<PathBuf>, bool);
        let cases: Vec<Case> = json::read(include_bytes!("../../../tests/globs.json")).unwrap();
        for (ByteString(glob), ByteString(path), expected) in cases {
            let pattern = Pattern::new(&glob, Path::new("/root")).unwrap();
            assert_eq!(pattern.matches_anywhere(&path), expected, "{glob:?} {path:?}");
        }
    }

    #[test]
    fn paths() {
        for (glob, name, expected) in [
            ("./out.txt", "out.txt", true),
            ("/root/out.txt", "out.txt", true),
            ("two words\n", "two words\n", true),
            ("", "a", false),
            ("a", "a/b", false),
        ] {
            assert_eq!(pattern(glob).matches(Path::new(name)), expected, "{glob:?} {name:?}");
        }
    }

    #[test]
    fn directories() {
        assert_eq!(pattern("out").below(Path::new("out/a/b")), Some(Path::new("a/b")));
        assert_eq!(pattern("out").below(Path::new("out")), None);
        assert_eq!(pattern(".").below(Path::new("a")), Some(Path::new("a")));
        assert!(pattern("a/*/c").leads_through(Path::new("a/x")));
        assert!(!pattern("a/*/c").leads_through(Path::new("b")));
        assert!(!pattern("*").leads_through(Path::new("a")));
        assert!(pattern("*").leads_through(Path::new("")));
    }

    #[test]
    fn many_stars_and_brackets_take_no_time() {
        let began = std::time::Instant::now();
        let name = "a".repeat(255);
        for glob in ["*a".repeat(2000) + "b", "*[!b-z]".repeat(2000) + "b", "*".to_owned() + &"[".repeat(20_000)] {
            let pattern = pattern(&glob);
            assert!((0..100).all(|_| !pattern.matches(Path::new(&name))));
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn outside_is_refused() {
        assert!(Pattern::new(Path::new("../x"), Path::new("/root")).is_err());
        assert!(Pattern::new(Path::new("/other/x"), Path::new("/root")).is_err());
    }
}

//! Shell patterns as POSIX `glob` has them: `*`, `?` and `[..]` match neither `/` nor a leading dot.
//!
//! Matching is done on code points; a byte that is not UTF-8 is a code point of its own (U+DC80..U+DCFF).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A pattern for a relative path; `.` is the pattern without components, which matches the directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    components: Vec<Vec<u32>>,
}

impl Pattern {
    /// Reads a pattern relative to `root`; an absolute one has to be below `root`.
    ///
    /// # Errors
    /// A message when the pattern leaves `root`.
    pub fn new(text: &Path, root: &Path) -> Result<Self, String> {
        let outside = || format!("glob {text:?} leaves {root:?}");
        let relative = if text.is_absolute() { text.strip_prefix(root).map_err(|_| outside())? } else { text };
        let mut components = Vec::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => components.push(code_points(name)),
                Component::CurDir => {}
                _ => return Err(outside()),
            }
        }
        Ok(Self { components })
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

const fn point(character: char) -> u32 {
    character as u32
}

fn matches_name(pattern: &[u32], name: &[u32]) -> bool {
    if name.first() == Some(&point('.')) && pattern.first() != Some(&point('.')) {
        return pattern.starts_with(&[point('\\'), point('.')]) && matches_rest(pattern, name);
    }
    matches_rest(pattern, name)
}

/// Greedy matching with one point of return: the last `*`.
fn matches_rest(pattern: &[u32], name: &[u32]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut retry = None;
    while read < name.len() {
        if pattern.get(at) == Some(&point('*')) {
            at += 1;
            retry = Some((at, read));
        } else if let Some(length) = matches_one(&pattern[at..], name[read]) {
            at += length;
            read += 1;
        } else if let Some((after_star, from)) = retry {
            at = after_star;
            read = from + 1;
            retry = Some((after_star, from + 1));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == point('*'))
}

/// The length of the pattern element at the start of `pattern` if it matches `one`.
fn matches_one(pattern: &[u32], one: u32) -> Option<usize> {
    let first = *pattern.first()?;
    if first == point('?') {
        return Some(1);
    }
    if first == point('[') {
        if let Some((matched, length)) = matches_bracket(pattern, one) {
            return matched.then_some(length);
        }
    }
    if first == point('\\') && pattern.len() > 1 {
        return (pattern[1] == one).then_some(2);
    }
    (first == one).then_some(1)
}

/// Whether the bracket expression at the start of `pattern` matches, and its length; None when it is not closed.
fn matches_bracket(pattern: &[u32], one: u32) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(first) if *first == point('!') || *first == point('^'));
    let start = if negated { 2 } else { 1 };
    let length = pattern.iter().skip(start + 1).position(|p| *p == point(']'))? + start + 1;
    let members = &pattern[start..length];
    let (mut at, mut found) = (0, false);
    while at < members.len() {
        if at + 2 < members.len() && members[at + 1] == point('-') {
            found |= (members[at]..=members[at + 2]).contains(&one);
            at += 3;
        } else {
            found |= members[at] == one;
            at += 1;
        }
    }
    Some((found != negated, length + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(Path::new(text), Path::new("/root")).unwrap()
    }

    #[test]
    fn posix_table() {
        for (glob, name, expected) in [
            ("*.sam", "a.sam", true),
            ("*.sam", "a.bam", false),
            ("*", ".hidden", false),
            ("?hidden", ".hidden", false),
            ("[.]hidden", ".hidden", false),
            (".*", ".hidden", true),
            ("*", "a/b", false),
            ("*/b", "a/b", true),
            ("*/b", ".a/b", false),
            ("a?c", "abc", true),
            ("a?c", "a\u{e9}c", true),
            ("a[0-9]c", "a5c", true),
            ("a[!0-9]c", "a5c", false),
            ("a[!0-9]c", "axc", true),
            ("a[]]c", "a]c", true),
            ("a[bc", "a[bc", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
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
    fn outside_is_refused() {
        assert!(Pattern::new(Path::new("../x"), Path::new("/root")).is_err());
        assert!(Pattern::new(Path::new("/other/x"), Path::new("/root")).is_err());
    }
}

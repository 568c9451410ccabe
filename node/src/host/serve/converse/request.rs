//! The requests of the driver, one JSON object a line.

use std::ffi::OsString;

use serde::de::IgnoredAny;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::json::{self, ByteString};

#[derive(Debug)]
pub enum Request<'a> {
    /// Make a job of this name; its `job.json` is `spec`, as it came.
    Job {
        id: OsString,
        spec: &'a str,
    },
    /// Start the command of a job: a script of the POSIX shell.
    Run {
        id: OsString,
        command: OsString,
    },
    /// Give a job other limits.
    Limit {
        id: OsString,
        spec: &'a str,
    },
    Cancel(OsString),
    /// The driver is there.
    Alive,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    job: Option<ByteString<OsString>>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    run: Option<ByteString<OsString>>,
    command: Option<ByteString<OsString>>,
    limit: Option<ByteString<OsString>>,
    cancel: Option<ByteString<OsString>>,
    alive: Option<IgnoredAny>,
}

impl<'a> Request<'a> {
    /// # Errors
    /// A message that says what is not understood.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        let Members { job, spec, run, command, limit, cancel, alive } = json::read(line)?;
        match (job, run, limit, cancel, alive, spec, command) {
            (Some(id), None, None, None, None, Some(spec), None) => Ok(Self::Job { id: id.0, spec: spec.get() }),
            (None, Some(id), None, None, None, None, Some(command)) => Ok(Self::Run { id: id.0, command: command.0 }),
            (None, None, Some(id), None, None, Some(spec), None) => Ok(Self::Limit { id: id.0, spec: spec.get() }),
            (None, None, None, Some(id), None, None, None) => Ok(Self::Cancel(id.0)),
            (None, None, None, None, Some(_), None, None) => Ok(Self::Alive),
            _ => {
                Err("has to have \"job\" or \"limit\" and \"spec\", \"run\" and \"command\", \"cancel\", or \"alive\""
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn specs_are_what_came() {
        for spec in
            [r#"{"name": "\udcff", "x" : [1.50, null]}"#, "{}", "7", r#""\ud800""#, &"[".repeat(9).replace('[', "[[")]
        {
            let spec = if spec.starts_with("[[") { format!("{spec}{}", "]".repeat(spec.len())) } else { spec.into() };
            let line = format!(r#" {{"job":"a\udc80\n","spec":{spec} }} "#);
            let Ok(Request::Job { id, spec: found }) = Request::parse(line.as_bytes()) else { panic!("{line}") };
            assert_eq!((id.as_bytes(), found), (&b"a\x80\n"[..], &*spec));
        }
    }

    #[test]
    fn what_else_is_understood() {
        assert!(matches!(Request::parse(br#"{"cancel":"../x"}"#), Ok(Request::Cancel(id)) if id == "../x"));
        assert!(matches!(Request::parse(b"{\"alive\":1}\r"), Ok(Request::Alive)));
        let limit = Request::parse(br#"{"limit":"a","spec":{"rate": null}}"#);
        assert!(matches!(limit, Ok(Request::Limit { id, spec: r#"{"rate": null}"# }) if id == "a"));
        let run = Request::parse(br#"{"run":"a","command":"b\udcff"}"#);
        assert!(matches!(run, Ok(Request::Run { id, command }) if id == "a" && command.as_bytes() == b"b\xff"));
    }

    #[test]
    fn what_is_not_understood() {
        for line in [
            &b""[..],
            b"{",
            b"7",
            b"{}",
            b"\xff\x00",
            br#"{"job":"a"}"#,
            br#"{"spec":{}}"#,
            br#"{"job":"a","spec":null}"#,
            br#"{"job":1,"spec":{}}"#,
            br#"{"job":"\ud800","spec":{}}"#,
            br#"{"job":"a","spec":{"}"#,
            br#"{"job":"a","spec":{},"alive":1}"#,
            br#"{"job":"a","job":"b","spec":{}}"#,
            br#"{"cancel":"a","alive":1}"#,
            br#"{"run":"a"}"#,
            br#"{"command":"a"}"#,
            br#"{"job":"a","command":"b"}"#,
            br#"{"run":"a","command":["b"]}"#,
            br#"{"limit":"a"}"#,
            br#"{"limit":"a","job":"a","spec":{}}"#,
            br#"{"limit":"a","rate":1}"#,
            br#"{"cancel":"a","other":1}"#,
            br#"{"alive":1} {"alive":1}"#,
            b"{\"job\":\"a\",\"spec\":{\"name\":\"\xff\"}}",
        ] {
            assert!(Request::parse(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
        assert!(Request::parse("[".repeat(1 << 20).as_bytes()).is_err());
    }
}

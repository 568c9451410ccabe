//! The requests of the driver, one JSON object a line.

use std::ffi::OsString;

use crate::protocol::json;
use crate::protocol::messages;
use crate::protocol::values::Json;

#[derive(Debug)]
pub enum Request {
    /// Make a job of this name; its `job.json` is `spec`, as it came.
    Job {
        id: OsString,
        spec: Json,
    },
    /// Start the command of a job: a script of the POSIX shell.
    Run {
        id: OsString,
        command: OsString,
    },
    /// Give a job other limits.
    Limit {
        id: OsString,
        spec: Json,
    },
    Cancel(OsString),
    /// The driver is there.
    Alive,
}

impl Request {
    /// # Errors
    /// A message that says what is not understood.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let messages::Request { job, spec, run, command, limit, cancel, alive } = json::read(line)?;
        match (job, run, limit, cancel, alive, spec, command) {
            (Some(id), None, None, None, None, Some(spec), None) => Ok(Self::Job { id: id.0, spec }),
            (None, Some(id), None, None, None, None, Some(command)) => Ok(Self::Run { id: id.0, command: command.0 }),
            (None, None, Some(id), None, None, Some(spec), None) => Ok(Self::Limit { id: id.0, spec }),
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
            assert_eq!((id.as_bytes(), found.0.get()), (&b"a\x80\n"[..], &*spec));
        }
    }

    #[test]
    fn what_else_is_understood() {
        assert!(matches!(Request::parse(br#"{"cancel":"../x"}"#), Ok(Request::Cancel(id)) if id == "../x"));
        assert!(matches!(Request::parse(b"{\"alive\":1}\r"), Ok(Request::Alive)));
        let limit = Request::parse(br#"{"limit":"a","spec":{"rate": null}}"#);
        assert!(matches!(limit, Ok(Request::Limit { id, spec }) if id == "a" && spec.0.get() == r#"{"rate": null}"#));
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

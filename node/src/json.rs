//! JSON (RFC 8259) whose strings are bytes, so that a path survives whatever its bytes are.
//!
//! A byte that is not UTF-8 is written as the lone surrogate `\udc80`..`\udcff`, as Python's `surrogateescape` does
//! (PEP 383): `json.loads` and `os.fsencode` give the same bytes back.

use std::fmt::Write;

/// Values nested deeper than this are refused.
const DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(Vec<u8>),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// # Errors
    /// A message with line and column.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut parser = Parser { bytes, at: 0 };
        let value = parser.value(0).and_then(|value| {
            parser.skip_space();
            if parser.at == bytes.len() {
                Ok(value)
            } else {
                Err("nothing more")
            }
        });
        value.map_err(|expected| {
            let before = &bytes[..parser.at.min(bytes.len())];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            format!("line {line}, column {column}: expected {expected}")
        })
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        // Of members with the same name the last one holds, as in Python.
        members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn text(&self) -> Option<&[u8]> {
        if let Json::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Json::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
            _ => None,
        }
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Parsed<T> = Result<T, &'static str>;

impl Parser<'_> {
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Parsed<Json> {
        if depth > DEPTH {
            return Err("fewer levels");
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
                    if self.bytes[self.at..].starts_with(word.as_bytes()) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err("a value")
            }
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Json> {
        let mut members = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            let name = String::from_utf8_lossy(&self.string()?).into_owned();
            self.skip_space();
            if !self.take(b':') {
                return Err("\":\"");
            }
            members.push((name, self.value(depth + 1)?));
            self.skip_space();
            if self.take(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take(b',') {
                return Err("\",\" or \"}\"");
            }
        }
    }

    fn list(&mut self, depth: usize) -> Parsed<Json> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return Err("\",\" or \"]\"");
            }
        }
    }

    fn number(&mut self) -> Parsed<Json> {
        let rest = &self.bytes[self.at..];
        let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| part(byte)).count();
        let number = std::str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse().ok()).ok_or("a number")?;
        self.at += length;
        Ok(Json::Number(number))
    }

    fn string(&mut self) -> Parsed<Vec<u8>> {
        if !self.take(b'"') {
            return Err("a string");
        }
        let mut text = Vec::new();
        loop {
            match self.peek().ok_or("the end of the string")? {
                b'"' => {
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => self.escape(&mut text)?,
                0..=0x1F => return Err("no control character"),
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Parsed<()> {
        let escaped = self.bytes.get(self.at + 1).copied().ok_or("an escape")?;
        let plain = match escaped {
            b'"' | b'\\' | b'/' => escaped,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.code_point(text),
            _ => return Err("an escape"),
        };
        text.push(plain);
        self.at += 2;
        Ok(())
    }

    fn code_point(&mut self, text: &mut Vec<u8>) -> Parsed<()> {
        let first = self.unit()?;
        let code = match first {
            0xDC80..=0xDCFF => {
                text.push((first & 0xFF) as u8);
                return Ok(());
            }
            0xD800..=0xDBFF => {
                let second = self.unit()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err("the second half of a surrogate pair");
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            _ => first,
        };
        let character = char::from_u32(code).ok_or("a Unicode character")?;
        text.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn unit(&mut self) -> Parsed<u32> {
        let escape = self.bytes.get(self.at..self.at + 6).filter(|escape| escape.starts_with(b"\\u"));
        let digits = escape.map(|escape| &escape[2..]).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        self.at += 6;
        unit.ok_or("four hexadecimal digits")
    }
}

/// Writes an object, member by member.
#[derive(Debug)]
pub struct Writer(String);

impl Writer {
    pub fn new() -> Self {
        Self("{".into())
    }

    fn name(&mut self, name: &str) -> &mut String {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, name.as_bytes());
        self.0.push(':');
        &mut self.0
    }

    pub fn text(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        quote(self.name(name), bytes);
        self
    }

    /// A number or a truth value.
    pub fn plain(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let _ = write!(self.name(name), "{value}");
        self
    }

    /// The members of an object in JSON.
    pub fn members(&mut self, object: &str) -> &mut Self {
        let inner = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or("").trim();
        if !inner.is_empty() {
            let comma = if self.0.len() > 1 { "," } else { "" };
            let _ = write!(self.0, "{comma}{inner}");
        }
        self
    }

    pub fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.0);
        text.push('}');
        text
    }
}

fn quote(text: &mut String, bytes: &[u8]) {
    text.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\0'..='\x1F' | '\x7F' => {
                    let _ = write!(text, "\\u{:04x}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\udc{byte:02x}");
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives() {
        for name in [
            &b"plain"[..],
            b"two words\n\t\"\\\x01",
            "caf\u{e9} \u{1F9EC}".as_bytes(),
            b"\xff\x80a\xc3",
            b"\xed\xb2\x80",
        ] {
            let line = Writer::new().text("path", name).finish();
            assert!(!line.contains('\n'));
            let back = Json::parse(line.as_bytes()).unwrap();
            assert_eq!(back.get("path").and_then(Json::text), Some(name), "{line}");
        }
        assert_eq!(Writer::new().text("p", b"a\xffb").finish(), r#"{"p":"a\udcffb"}"#);
    }

    #[test]
    fn values() {
        let value =
            Json::parse(br#" {"a": [1, -2.5e1, null, true, "\u00e9\ud83e\uddec\/"], "b": {}, "b": 3} "#).unwrap();
        let text = Json::Text("\u{e9}\u{1F9EC}/".as_bytes().to_vec());
        let list = vec![Json::Number(1.0), Json::Number(-25.0), Json::Null, Json::Bool(true), text];
        assert_eq!(value.get("a"), Some(&Json::List(list)));
        assert_eq!(value.get("b").and_then(Json::integer), Some(3));
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, message) in [
            ("{\n \"a\" 1}", "line 2, column 6: expected \":\""),
            ("[1,", "line 1, column 4: expected a value"),
            ("[1] 2", "line 1, column 5: expected nothing more"),
            ("\"\\ud800x\"", "expected four hexadecimal digits"),
            ("", "line 1, column 1: expected a value"),
        ] {
            let error = Json::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(Json::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn members_join() {
        assert_eq!(Writer::new().text("job", b"j").members("{\"a\":1}").finish(), r#"{"job":"j","a":1}"#);
        assert_eq!(Writer::new().members("{}").plain("x", 1.5).finish(), r#"{"x":1.5}"#);
    }
}

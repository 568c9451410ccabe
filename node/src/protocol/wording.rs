//! Numbers in messages for people.

/// Returns a number with its noun: `1 byte`, `2 bytes`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns how often something has happened: `once`, `2 times`.
pub fn how_often(number: u64) -> String {
    if number == 1 {
        "once".into()
    } else {
        counted(number, "time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "byte")), ["0 bytes", "1 byte", "2 bytes"]);
        assert_eq!([0, 1, 2].map(how_often), ["0 times", "once", "2 times"]);
    }
}

//! A text into a document, as strictly as RFC 8259 asks for.
//!
//! It reads what clients send: it never panics, its stack is bounded by [`DEEPEST`], and what it
//! keeps is in proportion to the text. Messages are those of the JSON reader in MySQL, because
//! clients show them.

use super::{DEEPEST, Doc, Fault, Object};

/// Reads one document.
pub fn parse(text: &str) -> Result<Doc, Fault> {
    let mut reader = Reader { text, at: 0 };
    reader.blanks();
    if reader.at == text.len() {
        return Err(reader.fault("The document is empty."));
    }
    let document = reader.value(1)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err(reader.fault("The document root must not be followed by other values."));
    }
    Ok(document)
}

struct Reader<'a> {
    text: &'a str,
    /// Always between two characters.
    at: usize,
}

impl Reader<'_> {
    fn fault(&self, what: &'static str) -> Fault {
        Fault::Text(what, self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes on behind an ASCII character if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// A value that stands at a level, which begin with 1.
    fn value(&mut self, level: usize) -> Result<Doc, Fault> {
        if level > DEEPEST {
            return Err(Fault::TooDeep);
        }
        match self.peek() {
            Some(b'{') => self.object(level),
            Some(b'[') => self.array(level),
            Some(b'"') => self.string().map(Doc::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Doc::Bool(true)),
            Some(b'f') => self.word("false", Doc::Bool(false)),
            Some(b'n') => self.word("null", Doc::Null),
            _ => Err(self.fault("Invalid value.")),
        }
    }

    fn word(&mut self, word: &str, meant: Doc) -> Result<Doc, Fault> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.fault("Invalid value."));
        }
        self.at += word.len();
        Ok(meant)
    }

    fn array(&mut self, level: usize) -> Result<Doc, Fault> {
        self.at += 1;
        self.blanks();
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Doc::Array(items));
        }
        loop {
            self.blanks();
            items.push(self.value(level + 1)?);
            self.blanks();
            if self.take(b']') {
                return Ok(Doc::Array(items));
            }
            if !self.take(b',') {
                return Err(self.fault("Missing a comma or ']' after an array element."));
            }
        }
    }

    fn object(&mut self, level: usize) -> Result<Doc, Fault> {
        self.at += 1;
        self.blanks();
        let mut members = Vec::new();
        if self.take(b'}') {
            return Ok(Doc::Object(Object::new(members)));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.fault("Missing a name for object member."));
            }
            let name = self.string()?;
            self.blanks();
            if !self.take(b':') {
                return Err(self.fault("Missing a colon after a name of object member."));
            }
            self.blanks();
            members.push((name, self.value(level + 1)?));
            self.blanks();
            if self.take(b'}') {
                return Ok(Doc::Object(Object::new(members)));
            }
            if !self.take(b',') {
                return Err(self.fault("Missing a comma or '}' after an object member."));
            }
        }
    }

    /// The characters between two quotes, of which the first comes next.
    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let run = self.at;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            out.push_str(self.text.get(run..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escaped()?),
                Some(_) => return Err(self.fault("Invalid encoding in string.")),
                None => {
                    return Err(self.fault("Missing a closing quotation mark in string."));
                }
            }
        }
    }

    /// The character that an escape stands for; its backslash comes next.
    fn escaped(&mut self) -> Result<char, Fault> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.escaped_unit(),
            _ => return Err(self.fault("Invalid escape character in string.")),
        };
        self.at += 1;
        Ok(c)
    }

    /// `u` and four hexadecimal digits, or two of them that are one character.
    fn escaped_unit(&mut self) -> Result<char, Fault> {
        let odd = |reader: &Self| reader.fault("The surrogate pair in string is invalid.");
        let high = self.unit()?;
        let code = match high {
            0xD800..=0xDBFF => {
                if !self.take(b'\\') || self.peek() != Some(b'u') {
                    return Err(odd(self));
                }
                match self.unit()? {
                    low @ 0xDC00..=0xDFFF => 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00),
                    _ => return Err(odd(self)),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| odd(self))
    }

    /// The number of four hexadecimal digits behind a `u`.
    fn unit(&mut self) -> Result<u32, Fault> {
        self.at += 1;
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => Err(self.fault("Incorrect hex digit after \\u escape in string.")),
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Doc, Fault> {
        let start = self.at;
        self.take(b'-');
        // No other digit follows a leading zero.
        if !self.take(b'0') && self.digits() == 0 {
            return Err(self.fault("Invalid value."));
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            if self.digits() == 0 {
                return Err(self.fault("Miss fraction part in number."));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            if self.digits() == 0 {
                return Err(self.fault("Miss exponent in number."));
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if whole && let Ok(n) = text.parse::<i64>() {
            return Ok(Doc::Int(n));
        }
        if whole && let Ok(n) = text.parse::<u64>() {
            return Ok(Doc::UInt(n));
        }
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Doc::Double(n)),
            _ => Err(Fault::Text("Number too big to be stored in double.", start)),
        }
    }
}

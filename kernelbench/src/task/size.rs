//! How many elements does an array have in this case?

use crate::task::{Number, Size};
use std::collections::BTreeMap;

/// The longest expression that is read, in bytes.
const LONGEST: usize = 1000;
/// The deepest nesting of parentheses and signs.
const DEEPEST: usize = 50;

/// Why a size has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size `{expression}`, column {column}: {what}")]
pub struct SizeError {
    /// The whole expression.
    pub expression: String,
    /// Where in it, in characters from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub what: String,
}

impl Size {
    /// The number of elements under these scalars.
    ///
    /// # Errors
    /// Where the expression cannot be read, names something that is no whole-numbered scalar, divides by zero, overflows
    /// or comes out negative.
    pub fn elements(&self, scalars: &BTreeMap<String, Number>) -> Result<u64, SizeError> {
        let mut reader = Reader { text: &self.0, at: 0, depth: 0, scalars };
        if self.0.len() > LONGEST {
            return Err(reader.error(format!("expected at most {LONGEST} characters")));
        }
        let value = reader.sum()?;
        reader.skip_blanks();
        if reader.at < self.0.len() {
            return Err(reader.error("expected an operator or the end"));
        }
        u64::try_from(value).map_err(|_| reader.error(format!("comes out as {value}, expected 0 or more")))
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    scalars: &'a BTreeMap<String, Number>,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<i64, SizeError> {
        let mut value = self.product()?;
        while let Some(operator) = self.take_one_of("+-") {
            let right = self.product()?;
            let result = if operator == '+' { value.checked_add(right) } else { value.checked_sub(right) };
            value = result.ok_or_else(|| self.error("overflows 64 bits"))?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i64, SizeError> {
        let mut value = self.factor()?;
        while let Some(operator) = self.take_one_of("*/") {
            let right = self.factor()?;
            if operator == '/' && right == 0 {
                return Err(self.error("divides by zero"));
            }
            let result = if operator == '*' { value.checked_mul(right) } else { value.checked_div(right) };
            value = result.ok_or_else(|| self.error("overflows 64 bits"))?;
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<i64, SizeError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(format!("nests deeper than {DEEPEST}")));
        }
        let value = if self.take_one_of("(").is_some() {
            let inner = self.sum()?;
            self.take_one_of(")").ok_or_else(|| self.error("expected `)`"))?;
            inner
        } else if self.take_one_of("-").is_some() {
            self.factor()?.checked_neg().ok_or_else(|| self.error("overflows 64 bits"))?
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self) -> Result<i64, SizeError> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let word = &rest[..length];
        if word.is_empty() {
            return Err(self.error("expected a number, a scalar's name or `(`"));
        }
        let value = if word.starts_with(|c: char| c.is_ascii_digit()) {
            word.parse().map_err(|_| self.error(format!("`{word}` is no 64-bit whole number")))?
        } else {
            self.scalar(word)?
        };
        self.at += length;
        Ok(value)
    }

    fn scalar(&self, name: &str) -> Result<i64, SizeError> {
        match self.scalars.get(name) {
            Some(Number::Integer(value)) => Ok(*value),
            Some(Number::Float(_)) => Err(self.error(format!("scalar `{name}` is no whole number"))),
            None => {
                let known: Vec<&str> = self.scalars.keys().map(String::as_str).collect();
                Err(self.error(format!("no scalar is called `{name}`; the case has: {}", known.join(", "))))
            }
        }
    }

    fn take_one_of(&mut self, set: &str) -> Option<char> {
        self.skip_blanks();
        let next = self.text[self.at..].chars().next().filter(|c| set.contains(*c))?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn error(&self, what: impl Into<String>) -> SizeError {
        let column = self.text.get(..self.at).map_or(1, |before| before.chars().count() + 1);
        let expression = self.text.chars().take(LONGEST).collect();
        SizeError { expression, column, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(expression: &str) -> Result<u64, String> {
        let scalars = [("n", Number::Integer(6)), ("heads", Number::Integer(4)), ("eps", Number::Float(0.5))];
        let scalars = scalars.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Size(expression.into()).elements(&scalars).map_err(|e| e.to_string())
    }

    #[test]
    fn products_bind_closer_than_sums_and_both_go_from_left_to_right() {
        assert_eq!(elements("2 + n * heads - 1 - 1"), Ok(24));
        assert_eq!(elements("(2 + n) * heads / 3 / 2"), Ok(5));
        assert_eq!(elements("-n + 2*heads"), Ok(2));
    }

    #[test]
    fn what_has_no_value_says_where_and_why() {
        assert_eq!(
            elements("n * m").unwrap_err(),
            "size `n * m`, column 5: no scalar is called `m`; the case has: eps, heads, n"
        );
        assert_eq!(elements("n * eps").unwrap_err(), "size `n * eps`, column 5: scalar `eps` is no whole number");
        for (bad, why) in [
            ("n / (n - 6)", "divides by zero"),
            ("9223372036854775807 * n", "overflows"),
            ("n - 7", "comes out as -1"),
            ("n n", "expected an operator"),
            ("(n", "expected `)`"),
            ("", "expected a number"),
            ("99999999999999999999", "no 64-bit whole number"),
            ("n × 2", "expected an operator"),
        ] {
            let error = elements(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_hostile_expression_does_not_overflow_the_stack() {
        assert!(elements(&"(".repeat(999)).unwrap_err().contains("nests deeper"));
        assert!(elements(&"-".repeat(100_000)).unwrap_err().contains("at most"));
    }
}

//! Text from outside, as a terminal may show it.

/// Text that cannot move the cursor, ring, colour or turn the rest of the line around.
#[must_use]
pub fn plain(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' | '\r' => ' ',
        '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_model_says_reaches_the_terminal_as_a_command() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{202e}"), "a\u{fffd}[2Jb c\u{fffd}");
    }
}

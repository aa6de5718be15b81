//! What does each line of a batch's output say?

use crate::llm::chat::Completion;
use serde_json::Value;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The answer.
    Answer(Completion),
    /// An error that may pass.
    Failed(String),
    /// An error that will not.
    Refused(String),
    /// The batch ended before this question's turn.
    NoTurn,
}

/// Reads the lines of a file, each with its `custom_id`. What is no line of this format is passed over with a word in the log.
pub(super) fn read<'a>(
    text: &'a str,
    complaint: impl Fn(u16, &str) -> Line + 'a,
) -> impl Iterator<Item = (String, Line)> + 'a {
    text.lines().filter(|line| !line.trim().is_empty()).filter_map(move |text| {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let Some(custom_id) = value.get("custom_id").and_then(Value::as_str) else {
            tracing::warn!(
                bytes = text.len(),
                "a line of the batch's output is no JSON object with a custom_id: ignored"
            );
            return None;
        };
        Some((custom_id.to_owned(), line(&value, &complaint)))
    })
}

fn line(value: &Value, complaint: impl Fn(u16, &str) -> Line) -> Line {
    let body = value.pointer("/response/body").unwrap_or(&Value::Null);
    let Some(status) = value.pointer("/response/status_code").and_then(Value::as_u64) else {
        let error = value.get("error").unwrap_or(&Value::Null);
        return match error.get("code").and_then(Value::as_str) {
            Some("batch_expired" | "batch_cancelled") => Line::NoTurn,
            _ => complaint(500, &error.to_string()),
        };
    };
    if status != 200 {
        return complaint(u16::try_from(status).unwrap_or(500), &body.to_string());
    }
    Completion::read(body).map_or_else(Line::Failed, Line::Answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Option<Line> {
        let lines: Vec<_> = read(text, |status, body| Line::Failed(format!("{status} {body}"))).collect();
        assert!(lines.len() < 2 && lines.iter().all(|(id, _)| id == "a"), "{lines:?}");
        lines.into_iter().next().map(|(_, line)| line)
    }

    #[test]
    fn a_line_is_an_answer_an_error_or_a_turn_that_did_not_come() {
        let answer = r#"{"custom_id":"a","response":{"status_code":200,"body":{"choices":[{"message":{"content":"hi"}}]}},"error":null}"#;
        assert!(matches!(only(answer), Some(Line::Answer(completion)) if completion.text == "hi"));
        let expired = r#"{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"too late"}}"#;
        assert_eq!(only(expired), Some(Line::NoTurn));
        let failed = r#"{"custom_id":"a","response":{"status_code":429,"body":{"error":"slow"}}}"#;
        assert_eq!(only(failed), Some(Line::Failed(r#"429 {"error":"slow"}"#.into())));
        let empty = r#"{"custom_id":"a","response":{"status_code":200,"body":{}}}"#;
        assert!(matches!(only(empty), Some(Line::Failed(why)) if why.contains("choice")));
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        for text in ["", "\n\n", "{\"custom_id\":", "[1]", "null", "{\"custom_id\": 7}", "prose"] {
            assert_eq!(only(text), None, "{text:?}");
        }
    }
}

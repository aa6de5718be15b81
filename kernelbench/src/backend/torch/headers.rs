//! The headers that a candidate's C++ and CUDA are built with.
//!
//! The slim ones offer the part of torch's C++ interface that kernels use and take a second to read; what they cannot build
//! is built with torch's own. What is certified is always built with torch's own.

use crate::result::{
    error::EvalError,
    failure::Failure,
    label::{Kind, Label},
};
use serde::{Deserialize, Serialize};

/// Which headers a candidate's extensions are built with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// The slim ones, and torch's own where these do not do.
    #[default]
    Slim,
    /// Torch's own.
    Stock,
}

impl Headers {
    /// What the harness calls them.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Slim => "slim",
            Self::Stock => "stock",
        }
    }
}

/// How one extension was built, as the candidate's process says it: good for a label, and for nothing that counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extension {
    name: String,
    headers: String,
    seconds: f64,
    /// Why the slim headers did not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What a reader of the result is to know of its build.
pub(crate) fn label(extension: &Extension) -> Label {
    let Extension { name, seconds, why, .. } = extension;
    let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let text = match why {
        None if extension.headers == "slim" => {
            format!("`{name}` was built with the slim headers in {seconds:.1} s; a certified build has torch's own")
        }
        why => {
            let why = why.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
            format!(
                "`{name}` was built with torch's own headers in {seconds:.1} s, for the slim ones did not do: {why}"
            )
        }
    };
    Label::new(Kind::Headers, text)
}

/// What to note, where a candidate failed in a way that the slim headers may be behind: it raised something. Then torch's own
/// decide.
pub(crate) fn in_doubt(extensions: &[Extension], error: &EvalError) -> Option<Label> {
    let EvalError::Candidate(failure) = error else { return None };
    let Failure::Raised { error, .. } = &**failure else { return None };
    let slim = extensions.iter().any(|extension| extension.headers == "slim");
    let line: String = error.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(200).collect();
    let text = format!("built with torch's own headers, for with the slim ones it raised {line}");
    slim.then(|| Label::new(Kind::Headers, text))
}

#[cfg(test)]
mod tests {
    use super::{Extension, label};
    use serde_json::json;

    #[test]
    fn a_label_says_which_headers_were_used_and_repeats_nothing_that_breaks_a_line() {
        let said = json!([
            {"name": "a\u{1b}[2J", "headers": "slim", "seconds": 1.25},
            {"name": "b", "headers": "stock", "seconds": 31.0, "why": "no member named `frobnicate`\nmore"},
        ]);
        let extensions: Vec<Extension> = serde_json::from_value(said).unwrap();
        let labels: Vec<String> = extensions.iter().map(|extension| label(extension).text).collect();
        assert!(labels[0].starts_with("`a[2J` was built with the slim headers in 1.2 s"), "{labels:?}");
        assert!(labels[1].ends_with("did not do: no member named `frobnicate`"), "{labels:?}");
    }
}

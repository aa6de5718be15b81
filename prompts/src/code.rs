//! Which source file does a reply hold? The first fenced block that is code.

use crate::{
    Unreadable,
    reply::{after_thinking, beginning, quoted},
};
use kernelbench::{Candidate, Language};

/// Bytes of a reply that are looked at.
const LOOKED_AT: usize = 1 << 20;
/// Info strings of blocks that are no code.
const NO_CODE: [&str; 24] = [
    "json",
    "text",
    "txt",
    "plaintext",
    "plain",
    "output",
    "log",
    "console",
    "diff",
    "patch",
    "bash",
    "sh",
    "shell",
    "zsh",
    "markdown",
    "md",
    "yaml",
    "toml",
    "xml",
    "html",
    "make",
    "makefile",
    "cmake",
    "csv",
];

/// Info strings of other languages.
const OTHER_LANGUAGES: [(&str, &str); 16] = [
    ("python", "Python"),
    ("py", "Python"),
    ("python3", "Python"),
    ("triton", "Python"),
    ("cuda", "CUDA"),
    ("cu", "CUDA"),
    ("hip", "HIP"),
    ("rust", "Rust"),
    ("rs", "Rust"),
    ("java", "Java"),
    ("javascript", "JavaScript"),
    ("go", "Go"),
    ("fortran", "Fortran"),
    ("julia", "Julia"),
    ("asm", "assembly"),
    ("opencl", "OpenCL"),
];

/// A fenced block.
struct Block<'a> {
    /// The first word behind the fence, in lower case.
    info: String,
    text: &'a str,
    closed: bool,
}

/// Reads the Coder's reply: the first fenced block, unless it is JSON, text, a patch or a command line; then the first
/// that is code (CudaForge's release takes the first of all). Line ends become `\n`.
///
/// # Errors
/// Where there is no such block, it is empty, it is cut off, or it is in another language.
pub fn read_candidate(reply: &str, language: Language) -> Result<Candidate, Unreadable> {
    let (block, cut) = first_code(reply)?;
    candidate(&block, language, cut)
}

/// The first block that is code, and whether the reply was cut at its limit.
fn first_code(reply: &str) -> Result<(Block<'_>, bool), Unreadable> {
    let (text, cut) = beginning(after_thinking(reply)?, LOOKED_AT);
    let mut no_code = None;
    for block in blocks(text) {
        if !NO_CODE.contains(&block.info.as_str()) {
            return Ok((block, cut));
        }
        no_code.get_or_insert(block.info);
    }
    Err(no_block(no_code.as_deref()))
}

/// The text of the first block that is code, whole, with `\n` at its line ends; it may hold no function, and be empty.
///
/// # Errors
/// Where there is none, or it is cut off.
pub fn code_text(reply: &str) -> Result<String, Unreadable> {
    let (block, cut) = first_code(reply)?;
    check_closed(&block, cut)?;
    Ok(block.text.replace("\r\n", "\n"))
}

/// The text of the first block with this info string; none where there is none.
pub(crate) fn block_of(reply: &str, info: &str) -> Result<Option<String>, Unreadable> {
    let (text, cut) = beginning(after_thinking(reply)?, LOOKED_AT);
    let Some(block) = blocks(text).find(|block| block.info == info) else { return Ok(None) };
    check_closed(&block, cut)?;
    Ok(Some(block.text.replace("\r\n", "\n")))
}

fn check_closed(block: &Block<'_>, cut: bool) -> Result<(), Unreadable> {
    match (block.closed, cut) {
        (true, _) => Ok(()),
        (false, true) => Err(Unreadable("its code is longer than 1 MiB".into())),
        (false, false) => Err(Unreadable("its code block is not closed: the reply was cut off".into())),
    }
}

fn candidate(block: &Block<'_>, language: Language, cut: bool) -> Result<Candidate, Unreadable> {
    if language == Language::Python { check_python(block) } else { check_language(block, language) }?;
    check_closed(block, cut)?;
    let source = block.text.replace("\r\n", "\n");
    Ok(Candidate::new(format!("{}\n", source.trim_end())))
}

fn no_block(seen: Option<&str>) -> Unreadable {
    Unreadable(match seen {
        Some("diff" | "patch") => "it holds a patch; the complete source file was asked for".into(),
        Some(info) => format!("its only code block is {info}, no source file"),
        None => "it holds no fenced code block".into(),
    })
}

fn check_language(block: &Block<'_>, language: Language) -> Result<(), Unreadable> {
    let asked = match language {
        Language::C => "C11",
        Language::Cuda => "CUDA C++17",
        Language::Hip => "HIP C++17",
        Language::Hlsl => "HLSL",
        Language::Cpp | Language::Python => "C++17",
    };
    let lines = code_lines(block.text);
    if lines.is_empty() {
        return Err(Unreadable("its code block is empty".into()));
    }
    let by_info = OTHER_LANGUAGES.iter().find(|(info, _)| *info == block.info).map(|(_, name)| *name);
    let other = by_info.or_else(|| other_language(&lines));
    // Nothing but names tells the two apart.
    let own: &[&str] = match language {
        Language::Cuda => &["CUDA"],
        Language::Hip => &["CUDA", "HIP"],
        Language::C | Language::Cpp | Language::Hlsl | Language::Python => &[],
    };
    if let Some(other) = other.filter(|other| !own.contains(other)) {
        return Err(Unreadable(format!("its code block is {other}; {asked} was asked for")));
    }
    let is_code = block.text.contains('(') && block.text.contains('{');
    if !is_code {
        let first = quoted(lines.first().copied().unwrap_or_default());
        return Err(Unreadable(format!("its code block holds no function; it begins with \"{first}\"")));
    }
    Ok(())
}

/// A problem's answer is Python, with CUDA in its strings.
fn check_python(block: &Block<'_>) -> Result<(), Unreadable> {
    if block.text.trim().is_empty() {
        return Err(Unreadable("its code block is empty".into()));
    }
    let other = ["c", "cpp", "c++", "cuda", "cu"].contains(&block.info.as_str());
    if other || !block.text.contains("class ModelNew") {
        return Err(Unreadable("its code block is no Python file that defines the class `ModelNew`".into()));
    }
    Ok(())
}

/// The language that these lines are plainly written in, if it is neither C nor C++.
fn other_language(lines: &[&str]) -> Option<&'static str> {
    let starts = |prefix: &str| lines.iter().any(|line| line.starts_with(prefix));
    let definition = |line: &str| {
        (line.starts_with("def ") && line.ends_with(':')) || (line.starts_with("class ") && line.ends_with("):"))
    };
    if starts("import torch") || starts("import numpy") || starts("import triton") || starts("from torch") {
        return Some("Python");
    }
    if lines.iter().any(|line| definition(line)) {
        return Some("Python");
    }
    if lines.iter().any(|line| line.contains("__global__ ") || line.contains("<<<")) {
        return Some("CUDA");
    }
    starts("fn main").then_some("Rust")
}

/// The lines outside C comments, trimmed at their end; empty ones are left out.
fn code_lines(text: &str) -> Vec<&str> {
    let mut in_comment = false;
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim_end) {
        let inside = in_comment;
        in_comment = match (line.rfind("/*"), line.rfind("*/")) {
            (Some(open), Some(close)) => open > close,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => in_comment,
        };
        let start = line.trim_start();
        if !inside && !start.is_empty() && !start.starts_with("//") && !start.starts_with("/*") {
            lines.push(line);
        }
    }
    lines
}

/// The fenced blocks, in order; the last may lack its end.
fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (line, after) = next_line(rest)?;
            rest = after;
            let Some((fence, info)) = opening(line) else { continue };
            let (text, after, closed) = until_closed(rest, fence);
            rest = after;
            return Some(Block { info, text, closed });
        }
    })
}

/// The text before the line that closes this fence, the text behind that line, and whether there is one.
fn until_closed<'a>(text: &'a str, fence: &str) -> (&'a str, &'a str, bool) {
    let mut rest = text;
    while let Some((line, after)) = next_line(rest) {
        if closes(line, fence) {
            return (&text[..text.len() - rest.len()], after, true);
        }
        rest = after;
    }
    (text, "", false)
}

fn next_line(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() { None } else { Some(text.split_once('\n').unwrap_or((text, ""))) }
}

/// The fence of an opening line, and the first word behind it.
fn opening(line: &str) -> Option<(&str, String)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = line.trim_start_matches(mark);
    let fence = &line[..line.len() - info.len()];
    let word = info.trim_start_matches(['{', '.', ' ']).split([' ', ',', '}', ':', '\t']).next().unwrap_or("");
    (fence.len() >= 3 && !info.contains('`')).then(|| (fence, word.to_lowercase()))
}

fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim();
    line.len() >= fence.len() && line.starts_with(fence) && line.trim_start_matches(&fence[..1]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "#include <cmath>\nextern \"C\" void f(float* x) {\n    x[0] = 1;\n}\n";

    fn read(reply: &str) -> Result<String, String> {
        read_candidate(reply, Language::Cpp).map(|candidate| candidate.text()).map_err(|why| why.0)
    }

    #[test]
    fn the_first_block_of_code_is_the_candidate() {
        let replies = [
            format!("```cpp\n{FILE}```"),
            format!("Here it is:\n\n```\n{FILE}```\nIt is faster."),
            format!("```C++17 title=\"x.cpp\"\r\n{}```\r\n", FILE.replace('\n', "\r\n")),
            format!("```cpp\n{FILE}```\nor\n```cpp\nvoid g() {{}}\n```"),
            format!("```json\n{{}}\n```\n```bash\ng++ x.cpp\n```\n```cpp\n{FILE}```"),
            format!("````cpp\n{FILE}````\n"),
            format!("~~~c\n{FILE}\n\n~~~"),
            format!("<think>Maybe\n```cpp\nint draft() {{}}\n```\n</think>\n```cpp\n{FILE}```"),
            format!("```cpp\n{FILE}```\n```cpp\nvoid cut("),
        ];
        for reply in replies {
            assert_eq!(read(&reply).as_deref(), Ok(FILE), "{reply}");
        }
    }

    #[test]
    fn a_fence_inside_a_longer_fence_is_text() {
        let file = format!("// ```\n{FILE}");
        assert_eq!(read(&format!("````cpp\n{file}````")), Ok(file));
    }

    #[test]
    fn python_in_a_comment_is_no_python() {
        let file = format!("/* reference:\nimport torch\ndef f(x):\n*/\n// import torch\nclass A :\n  B {{}};\n{FILE}");
        assert_eq!(read(&format!("```cpp\n{file}```")), Ok(file));
    }

    #[test]
    fn what_is_no_candidate_is_refused_with_its_reason() {
        let cases = [
            ("", "it is empty"),
            (" \n\t ", "it is empty"),
            ("<think>I wonder", "it ends within its reasoning"),
            ("Use vectors. Inline ```code``` is no block.", "no fenced code block"),
            ("```cpp\n\n```", "code block is empty"),
            ("```cpp\n// to do\n```", "code block is empty"),
            ("```cpp\nvoid f() {\n  x", "cut off"),
            ("```\nUse vectors, please.\n```", "holds no function; it begins with \"Use vectors, please.\""),
            ("```json\n{}\n```", "only code block is json"),
            ("```diff\n-a\n+b\n```", "a patch; the complete source file was asked for"),
            ("```python\nx = f(1)\n```", "is Python; C++17 was asked for"),
            ("```\nimport torch\nsource = '''void f() {}'''\n```", "is Python"),
            ("```\ndef f(x):\n    return {x}\n```", "is Python"),
            ("```cpp\n__global__ void f(float* x) {}\n```", "is CUDA"),
            ("```rust\nfn main() {}\n```", "is Rust"),
        ];
        for (reply, reason) in cases {
            let why = read(reply).unwrap_err();
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }

    #[test]
    fn code_that_goes_on_behind_the_limit_is_refused_as_too_long() {
        let why = read(&format!("```cpp\nvoid f() {{}}\n{}\n```", "// x\n".repeat(LOOKED_AT / 4))).unwrap_err();
        assert!(why.contains("longer than 1 MiB"), "{why}");
    }
}

//! What does a function with C linkage take, as its source declares it?

/// The type of an argument, or of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `float`
    F32,
    /// `double`
    F64,
    /// `__half`
    F16,
    /// `__nv_bfloat16`
    Bf16,
    /// `__nv_fp8_e4m3`
    E4m3,
    /// `int32_t`
    I32,
    /// `int64_t`
    I64,
}

/// An argument, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type, or that of its elements.
    pub element: Element,
    /// Whether it is an array.
    pub array: bool,
    /// Whether it is a `const` array: one that is only read.
    pub constant: bool,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name.
    pub entry: String,
    /// What it takes, a stream left out.
    pub arguments: Vec<Argument>,
    /// Whether it takes a stream of CUDA as its last argument.
    pub stream: bool,
}

impl Element {
    /// As a task's file names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::E4m3 => "e4m3",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// Whether it is a whole number.
    #[must_use]
    pub fn is_whole(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    fn of(words: &str) -> Result<Self, String> {
        Ok(match words {
            "float" => Self::F32,
            "double" => Self::F64,
            "__half" | "half" | "uint16_t" => Self::F16,
            "__nv_bfloat16" | "nv_bfloat16" => Self::Bf16,
            "__nv_fp8_e4m3" | "uint8_t" => Self::E4m3,
            "int" | "int32_t" => Self::I32,
            "long" | "long long" | "int64_t" | "ptrdiff_t" => Self::I64,
            other => {
                let known = "float, double, int32_t, int64_t, uint16_t (half precision), uint8_t (e4m3), __half, __nv_bfloat16 or __nv_fp8_e4m3";
                return Err(format!("`{other}` is no type of an argument of a task; expected {known}"));
            }
        })
    }
}

/// What gives a function of C++ C's linkage.
const LINKAGE: &str = "extern \"C\"";

/// The function with C linkage of this name, or the only one: in C every one that is not static.
///
/// # Errors
///
/// Where there is none or there are several, and where one takes what a task cannot give: what was expected.
pub fn signature(source: &str, is_c: bool, entry: Option<&str>) -> Result<Signature, String> {
    let text = without_comments(source);
    let linked = text.match_indices(LINKAGE).map(|(at, mark)| &text[at + mark.len()..]);
    let linked = linked.flat_map(|rest| block(rest).map_or_else(|| head(rest).into_iter().collect(), declared));
    let plain = if is_c { declared(&text) } else { vec![] };
    let all: Vec<(&str, &str)> = plain.into_iter().chain(linked).collect();
    // With C linkage there is one of a name: of a prototype and its definition the last is taken.
    let last = |at: usize| !all[at + 1..].iter().any(|(name, _)| *name == all[at].0);
    let asked = |at: usize| entry.is_none_or(|entry| all[at].0 == entry) && last(at);
    let found: Vec<(&str, &str)> = (0..all.len()).filter(|at| asked(*at)).map(|at| all[at]).collect();
    let names = || found.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [(name, arguments)] => of(name, arguments),
        [] if is_c => Err(format!(
            "there is no function `void {}(...)` in it that is not static: what is called must return nothing",
            entry.unwrap_or("NAME")
        )),
        [] => Err(format!(
            "there is no `extern \"C\" void {}(...)` in it: what is called must have C linkage and return nothing",
            entry.unwrap_or("NAME")
        )),
        _ => Err(format!("it has several functions with C linkage ({}): name one with --entry", names())),
    }
}

/// Source without comments and lines for the preprocessor.
fn without_comments(source: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with('#');
    // A macro goes on behind a backslash at the end of a line.
    let source = source.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = source.lines().filter(is_code).map(|line| line.split("//").next().unwrap_or_default());
    let lines: Vec<&str> = lines.collect();
    let text = lines.join("\n");
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.split_once("*/").map_or("", |(_, rest)| rest))
}

/// What is between the braces that a text begins with, if it does.
fn block(text: &str) -> Option<&str> {
    let inside = text.trim_start().strip_prefix('{')?;
    let mut depth = 1;
    let end = inside.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    });
    Some(end.map_or(inside, |(at, _)| &inside[..at]))
}

/// Names and arguments of the functions that return nothing, outside of all braces and not static.
fn declared(text: &str) -> Vec<(&str, &str)> {
    let (mut found, mut depth, mut from) = (vec![], 0, 0);
    for (at, c) in text.char_indices() {
        if depth == 0 && (c == ';' || c == '{') {
            let declaration = &text[from..at];
            let is_own = declaration.split_whitespace().any(|word| ["static", "typedef"].contains(&word));
            found.extend(head(declaration).filter(|_| !is_own));
        }
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 && (c == ';' || c == '}') {
            from = at + 1;
        }
    }
    found
}

/// Name and arguments of what a text begins with, if it is a function that returns nothing.
fn head(text: &str) -> Option<(&str, &str)> {
    let (before, rest) = text.split_once('(')?;
    let (words, name) = before.trim_end().rsplit_once(|c: char| c.is_whitespace())?;
    let returns_nothing = words.split_whitespace().any(|word| word == "void") && !words.contains(['{', ';']);
    returns_nothing.then_some((name, rest.split_once(')')?.0))
}

fn of(entry: &str, arguments: &str) -> Result<Signature, String> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut texts: Vec<String> = arguments.split(',').map(words).filter(|text| !text.is_empty()).collect();
    let stream = texts.last().is_some_and(|last| last.starts_with("cudaStream_t"));
    if stream {
        texts.pop();
    }
    let arguments = texts.iter().map(|text| argument(text).map_err(|why| format!("{entry}: argument `{text}`: {why}")));
    Ok(Signature { entry: entry.to_owned(), arguments: arguments.collect::<Result<_, _>>()?, stream })
}

fn argument(text: &str) -> Result<Argument, String> {
    let bare = text.replace("__restrict__", " ").replace("__restrict", " ").replace('&', " & ");
    let stars = bare.matches('*').count();
    let bare = bare.replace('*', " ");
    let mut words: Vec<&str> = bare.split_whitespace().collect();
    let name = words.pop().filter(|_| !words.is_empty()).ok_or("it has a type and no name")?;
    if stars > 1 || words.contains(&"&") || name.ends_with(']') {
        return Err("expected a number or a plain array, such as `const float* x`".to_owned());
    }
    let constant = words.contains(&"const");
    let element = Element::of(
        &words.iter().copied().filter(|word| !["const", "restrict"].contains(word)).collect::<Vec<_>>().join(" "),
    )?;
    Ok(Argument { name: name.to_owned(), element, array: stars == 1, constant })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_numbers_and_a_stream_are_told_apart() {
        let source = "// extern \"C\" void no(int);\nextern \"C\" void scale(const float *__restrict__ x, __half* y,\n  \
                      float factor, const int64_t n, cudaStream_t stream) { other(x); }";
        let found = signature(source, false, None).unwrap();
        let kinds: Vec<_> = found.arguments.iter().map(|a| (a.name.as_str(), a.element, a.array, a.constant)).collect();
        assert!(found.entry == "scale" && found.stream);
        let expected =
            [("x", Element::F32, true, true), ("y", Element::F16, true, false), ("factor", Element::F32, false, false)];
        assert_eq!(kinds[..3], expected);
        assert_eq!(kinds[3], ("n", Element::I64, false, true));
    }

    #[test]
    fn in_c_and_in_a_block_of_its_linkage_functions_need_no_mark_of_their_own() {
        let entry = |source: &str, is_c| signature(source, is_c, None).map(|found| found.entry);
        let c = "#include <stdint.h>\n#define M(x) { \\\n    void x(int);\ntypedef void callback(int n);\nstatic void own(int n) { if (n) {} }\nstruct s { int a; };\n\
                 void add(const double *restrict x, double *y, int64_t n) {\n    for (int64_t i = 0; i < n; ++i) y[i] = x[i];\n}\n";
        assert_eq!(entry(c, true).as_deref(), Ok("add"));
        assert!(entry(c, false).unwrap_err().contains("must have C linkage"));
        assert!(entry("static void f(int n) {}", true).unwrap_err().contains("not static"));
        let block = "void no(int n);\nextern \"C\" {\nstatic void own(int n) {}\nvoid f(int n) { { } }\n}\nvoid other(int n) {}\n";
        assert_eq!(entry(block, false).as_deref(), Ok("f"));
        assert_eq!(entry("#ifdef __cplusplus\nextern \"C\" {\n#endif\nvoid f(int n);\n}", true).as_deref(), Ok("f"));
    }

    #[test]
    fn what_cannot_be_called_is_told() {
        let why = |source: &str| signature(source, false, None).unwrap_err();
        assert!(why("void scale(float* x);").contains("must have C linkage"));
        assert!(why("extern \"C\" void f(const char* text);").contains("`char` is no type"));
        assert!(why("extern \"C\" void f(float** x, int n);").contains("plain array"));
        let two = "extern \"C\" void f(int n) {}\nextern \"C\" void g(int n) {}";
        assert!(why(two).contains("f, g") && signature(two, false, Some("g")).unwrap().entry == "g");
        let declared = "extern \"C\" void f(uint8_t*, int);\nextern \"C\" void f(uint8_t *x, int n) {}";
        let found = signature(declared, false, None).unwrap();
        assert_eq!((found.arguments[0].name.as_str(), found.arguments[0].element), ("x", Element::E4m3));
    }
}

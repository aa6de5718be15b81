//! Kernels in HLSL: the shaders of the device region become SPIR-V, which lies as data beside the host region in a shared object.
//!
//! The regions before `host` are one text in HLSL, `macros` and `host` one in C++. Each shader of the first, which is a function
//! with `[numthreads(x, y, z)]`, is compiled for Vulkan 1.1: by DXC where it is found, else by glslang.

use crate::{
    result::{
        error::{Attempt, fault},
        failure::Failure,
    },
    task::region::{PREAMBLE, marker},
};
use std::{fmt::Write, fs, path::Path};

/// What the host region has, in C++.
pub(crate) const HOST_HEADER: &str = include_str!("../../harness/hlsl.h");
/// Where the shaders' text is written.
pub(super) const SHADERS: &str = "shaders.hlsl";
/// The unit that holds them compiled.
pub(super) const COMPILED: &str = "shaders.cpp";
/// Regions that the host's compiler gets.
const HOST: [&str; 2] = ["macros", "host"];

/// A kernel's text, as its two compilers get it; messages name regions, and count their lines from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    /// In HLSL.
    pub(crate) shaders: String,
    /// In C++.
    pub(crate) host: String,
}

impl Texts {
    /// Those of a source with a line that begins each region.
    pub(crate) fn of(source: &str) -> Attempt<Self> {
        let (mut texts, mut region) = (Self { shaders: String::new(), host: String::new() }, PREAMBLE.to_owned());
        for line in source.lines() {
            let begins = marker(line).map(str::to_owned);
            let line = begins.as_ref().map_or(line.to_owned(), |name| format!("#line 1 \"{name}.hlsl\""));
            region = begins.unwrap_or(region);
            if region != "host" {
                texts.shaders.extend([&line, "\n"]);
            }
            if HOST.contains(&region.as_str()) {
                texts.host.extend([&line, "\n"]);
            }
        }
        let missing =
            "a kernel in HLSL has the regions macros, device and host, each behind a line such as `// region: device`";
        if region == "host" { Ok(texts) } else { Err(Failure::Interface { log: missing.to_owned() }.into()) }
    }

    /// The names of the shaders, in their order.
    pub(crate) fn entries(&self) -> Vec<String> {
        let text = without_comments(&self.shaders);
        let mut names: Vec<String> = vec![];
        for behind in text.split("numthreads").skip(1) {
            // Behind the attribute, and others that may follow it, comes the function.
            let Some((_, mut rest)) = behind.split_once(']') else { continue };
            while let Some((_, more)) = rest.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                rest = more;
            }
            let Some(declared) = rest.trim_start().strip_prefix("void") else { continue };
            let name: String =
                declared.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn without_comments(text: &str) -> String {
    let (mut left, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        left.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") { "\n" } else { "*/" };
        rest = rest[at + 2..].split_once(end).map_or("", |(_, behind)| behind);
        left.push('\n');
    }
    left + rest
}

/// Where the code of a shader is left.
pub(super) fn code(entry: &str) -> String {
    format!("{entry}.spv")
}

/// The unit in C++ that holds all shaders, which lie compiled in a folder.
pub(super) fn compiled(folder: &Path, entries: &[String]) -> Attempt<String> {
    let (mut arrays, mut table) = (String::new(), String::new());
    for (at, entry) in entries.iter().enumerate() {
        let bytes = fs::read(folder.join(code(entry))).map_err(fault("cannot read a compiled shader"))?;
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let words = words.map(|word| word.to_string()).collect::<Vec<_>>().join(",");
        let _ = writeln!(arrays, "static const uint32_t code_{at}[] = {{{words}}};");
        let _ = writeln!(table, "    {{\"{entry}\", code_{at}, sizeof code_{at}}},");
    }
    Ok(format!(
        "{HOST_HEADER}\n{arrays}extern \"C\" const ws_shader ws_shaders[] = {{\n{table}    {{nullptr, nullptr, 0}}}};\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "// c = a\n// region: macros\n#define TILE 8\n// region: device\n// [numthreads(1, 1, 1)] void no() {}\n\
                          [numthreads(TILE, TILE, 1)]\nvoid copy(uint3 id : SV_DispatchThreadID) {}\n/* numthreads */\n\
                          [numthreads(1, 1, 1)] [other]\nvoid again() {}\n// region: host\nint f;\n";

    #[test]
    fn the_host_gets_macros_and_host_and_the_shaders_everything_before() {
        let texts = Texts::of(SOURCE).unwrap();
        assert_eq!(texts.host, "#line 1 \"macros.hlsl\"\n#define TILE 8\n#line 1 \"host.hlsl\"\nint f;\n");
        assert!(
            texts.shaders.starts_with("// c = a\n#line 1 \"macros.hlsl\"\n#define TILE 8\n#line 1 \"device.hlsl\"\n")
        );
        assert!(!texts.shaders.contains("int f"));
        assert!(Texts::of("void f();\n").is_err());
    }

    #[test]
    fn shaders_are_the_functions_with_numthreads_and_none_of_a_comment() {
        assert_eq!(Texts::of(SOURCE).unwrap().entries(), ["copy", "again"]);
    }
}

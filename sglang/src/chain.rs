//! What text is the reference of a chain: two of the framework's files, called one after another?
//!
//! Each file lies in the task as it is, and is included into a namespace of its own, since two may use one name for two
//! things. What they include themselves is included before, outside.

use crate::operator::{self, Operator};
use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// What calls the parts, by the chain's name.
const CALLS: [(&str, &str); 4] = [
    ("fused_add_rmsnorm_group_quant_fp8", include_str!("../chains/fused_add_rmsnorm_group_quant_fp8.cuh")),
    ("qknorm_rope", include_str!("../chains/qknorm_rope.cuh")),
    (
        "silu_and_mul_group_quant_fp8",
        concat!(include_str!("../chains/gated.cuh"), "\n", include_str!("../chains/silu_and_mul_group_quant_fp8.cuh")),
    ),
    (
        "silu_and_mul_quant_fp8",
        concat!(include_str!("../chains/gated.cuh"), "\n", include_str!("../chains/silu_and_mul_quant_fp8.cuh")),
    ),
];

/// The files of a chain's parts, as the framework names them.
///
/// # Errors
/// Where a part is no operator, which a test rules out.
pub fn files(chain: &Operator) -> Result<Vec<String>, String> {
    chain.parts.iter().map(|part| Ok(operator::named(part)?.file)).collect()
}

/// Writes a chain's text into a folder, from the parts below the framework's sources.
///
/// # Errors
/// A sentence that names a file that cannot be read or written.
pub fn write(chain: &Operator, sources: &Path, folder: &Path) -> Result<PathBuf, String> {
    let mut texts = vec![];
    for file in files(chain)? {
        let path = sources.join(&file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        texts.push((file, text));
    }
    let place = folder.join(chain.source());
    fs::write(&place, text(chain, sources, &texts)).map_err(|e| format!("cannot write {}: {e}", place.display()))?;
    Ok(place)
}

fn text(chain: &Operator, sources: &Path, parts: &[(String, String)]) -> String {
    let includes: BTreeSet<String> = parts.iter().flat_map(|(file, text)| included(sources, file, text)).collect();
    let mut made = format!(
        "// {}, as SGLang calls them one after another: its files, each in a namespace of its own.\n",
        chain.parts.join(", then ")
    );
    for line in includes {
        let _ = writeln!(made, "{line}");
    }
    made += "\nnamespace sglang {}\n";
    for (place, (file, _)) in parts.iter().enumerate() {
        let part = place + 1;
        let _ = write!(
            made,
            "\nnamespace part_{part} {{\nnamespace sglang {{\nusing namespace ::sglang;\n}}\nusing namespace sglang;\n#include \"{file}\"\n}}  // namespace part_{part}\n"
        );
    }
    let call = CALLS.iter().find(|(name, _)| *name == chain.name).map_or("", |(_, text)| text);
    made + "\n" + call
}

/// The files that a file includes; one that lies beside it is named from the folder of sources.
fn included(sources: &Path, file: &str, text: &str) -> Vec<String> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let line = |line: &str| {
        let named = line.trim().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim();
        let beside = named.strip_prefix('"').and_then(|rest| rest.split('"').next()).map(|name| folder.join(name));
        match beside.filter(|path| sources.join(path).is_file()) {
            Some(path) => Some(format!("#include \"{}\"", path.display())),
            None => Some(format!("#include {named}")),
        }
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_has_a_text_that_calls_each_part_in_order() {
        for chain in operator::all().into_iter().filter(|one| !one.parts.is_empty()) {
            let parts: Vec<_> = files(&chain)
                .unwrap_or_default()
                .into_iter()
                .map(|file| (file, "# include <a.h> \n".to_owned()))
                .collect();
            let text = text(&chain, Path::new("/nowhere"), &parts);
            assert_eq!(text.matches("#include <a.h>").count(), 1, "{text}");
            let calls: Vec<_> = (1..=parts.len()).map(|part| text.find(&format!("part_{part}::"))).collect();
            assert!(calls.iter().all(Option::is_some) && calls.is_sorted(), "{text}");
        }
    }
}

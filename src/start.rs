//! An operator from elsewhere: a folder with its sketch, its parameters and its primitives, to be tuned and not generated.

use kernelbench::{Candidate, Language, Operator, Primitives, Space, Task, load};
use std::{fs, path::Path};

/// What a folder for `--start` holds, for people.
const EXPECTED: &str = "expected sketch.cpp (or sketch.c, sketch.cu), perhaps parameters.toml, and perhaps primitives.py (for a GPU primitives.cu)";

/// Reads the operator of a folder.
///
/// # Errors
/// In a sentence: which file is missing or wrong, and what was expected.
pub fn operator(folder: &Path, task: &Task) -> Result<Operator, String> {
    let ending = match task.language() {
        Language::C => "c",
        Language::Cpp => "cpp",
        Language::Cuda => "cu",
        Language::Hip => "hip",
        Language::Hlsl => "hlsl",
        Language::Python => {
            return Err("a problem in Python has no sketch: only kernel contexts are searched".to_owned());
        }
    };
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|e| format!("{}: {e}: {EXPECTED}", path.display()))
    };
    let optional = |name: &str| if folder.join(name).exists() { read(name).map(Some) } else { Ok(None) };
    let sketch = read(&format!("sketch.{ending}"))?;
    let parameters = optional("parameters.toml")?.unwrap_or_default();
    let rows: toml::Table = parameters.parse().map_err(|why| format!("{}/parameters.toml: {why}", folder.display()))?;
    let tuning = load::parameters(&rows).and_then(|space| Space::default().widened(&space));
    let tuning = tuning.map_err(|why| format!("{}/parameters.toml: {why}", folder.display()))?;
    let primitives = match (optional("primitives.py")?, optional("primitives.cu")?) {
        (_, Some(source)) if ending == "cu" => Primitives::Source(source),
        (Some(script), _) if ending != "cu" => Primitives::Script(script),
        _ => Primitives::None,
    };
    let operator = Operator { sketch, tuning, primitives };
    named(&operator).map_err(|why| format!("{}: {why}", folder.display()))?;
    operator.first().map_err(|why| format!("{}: {why}", folder.display()))?;
    Ok(operator)
}

/// Every parameter that the sketch writes has values; and where no primitives are made for them, it writes each that has.
fn named(operator: &Operator) -> Result<(), String> {
    let (sketch, grid) = (Candidate::new(operator.sketch.clone()), &operator.tuning.grid);
    let written = sketch.placeholders();
    if let Some(name) = written.iter().find(|name| !grid.contains_key(*name)) {
        return Err(format!("the sketch writes {{{{{name}}}}}, and parameters.toml has no values for {name}"));
    }
    match grid.keys().find(|name| operator.primitives == Primitives::None && !written.contains(*name)) {
        Some(name) => Err(format!("parameters.toml has values for {name}, and the sketch never writes {{{{{name}}}}}")),
        None => Ok(()),
    }
}

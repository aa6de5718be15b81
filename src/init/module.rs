//! What must be added to a module of PyTorch to make it a problem in KernelBench's format?

/// What such a file defines.
const CONTRACT: [&str; 3] = ["class Model(", "def get_inputs(", "def get_init_inputs("];

/// The text of a problem around this class, or around the last one of the file: its own text, and after it what the format
/// asks for and the file lacks.
///
/// # Errors
///
/// Where it holds no module, or one that takes what cannot be guessed.
pub fn problem(source: &str, class: Option<&str>) -> Result<String, String> {
    if class.is_none() && CONTRACT.iter().all(|name| source.contains(name)) {
        return Ok(source.to_owned());
    }
    let name = match class {
        Some(name) => name,
        None => classes(source).pop().ok_or("there is no `class NAME(nn.Module)` in it")?,
    };
    let body = source.split_once(&format!("class {name}(")).ok_or_else(|| format!("there is no class {name} in it"))?.1;
    let body = body.split("\nclass ").next().unwrap_or_default();
    let forward = parameters(body, "forward")?.ok_or_else(|| format!("{name} has no `def forward(self, ...)`"))?;
    let made = parameters(body, "__init__")?.unwrap_or_default();
    let imports = if source.contains("import torch\n") { "" } else { "import torch\n\n" };
    let model = if name == "Model" {
        String::new()
    } else {
        format!("class Model({name}):\n    \"\"\"{name}, under the name that the format asks for.\"\"\"\n\n\n")
    };
    let inputs = vec!["torch.rand(rows, columns)"; forward.len()].join(", ");
    let made_of = vec!["columns"; made.len()].join(", ");
    Ok(format!(
        "{}\n\n\n# Added by `warpsmith init`: a problem in KernelBench's format. LOOK: the shapes are a guess.\n{imports}\
         rows = 512\ncolumns = 1024\n\n\n{model}def get_inputs():\n    # LOOK: one for each argument of forward: {}.\n    \
         return [{inputs}]\n\n\ndef get_init_inputs():\n    # LOOK: what the class is made with: {}.\n    return [{made_of}]\n",
        source.trim_end(),
        named(&forward),
        named(&made)
    ))
}

fn named(parameters: &[&str]) -> String {
    if parameters.is_empty() { "nothing".to_owned() } else { parameters.join(", ") }
}

/// The names of the modules that a source defines, in order.
fn classes(source: &str) -> Vec<&str> {
    let heads = source.lines().filter_map(|line| line.strip_prefix("class ")?.split_once('('));
    heads.filter(|(_, bases)| bases.contains("Module)")).map(|(name, _)| name.trim()).collect()
}

/// What a method takes beside `self` and has no default; `None` where there is no such method.
fn parameters<'a>(body: &'a str, method: &str) -> Result<Option<Vec<&'a str>>, String> {
    let Some((_, rest)) = body.split_once(&format!("def {method}(")) else { return Ok(None) };
    let mut depth = 0;
    let end = rest.find(|c: char| {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        depth < 0
    });
    let mut list = vec![];
    let (mut from, mut depth) = (0, 0);
    let text = &rest[..end.ok_or_else(|| format!("`def {method}(` does not end"))?];
    for (at, c) in text.char_indices().chain([(text.len(), ',')]) {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        if c == ',' && depth == 0 {
            list.push(text[from..at].trim());
            from = at + 1;
        }
    }
    list.retain(|one| !one.is_empty() && *one != "self" && !one.contains('='));
    if let Some(several) = list.iter().find(|one| one.starts_with('*')) {
        return Err(format!("{method} takes `{several}`: name its arguments one by one"));
    }
    Ok(Some(list.into_iter().map(|one| one.split(':').next().unwrap_or_default().trim()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "import torch\nimport torch.nn as nn\n\nclass Gate(nn.Module):\n    \
        def __init__(self, width: int, bias=True):\n        super().__init__()\n\n    \
        def forward(self, x: torch.Tensor, pair: tuple[int, int], scale: float = 1.0):\n        return x\n";

    #[test]
    fn the_module_stays_and_what_the_format_asks_for_stands_behind_it() {
        let text = problem(MODULE, None).unwrap();
        assert!(text.starts_with(MODULE.trim_end()) && text.contains("class Model(Gate):"));
        assert!(text.contains("return [torch.rand(rows, columns), torch.rand(rows, columns)]"), "{text}");
        assert!(text.contains("return [columns]") && CONTRACT.iter().all(|name| text.contains(name)));
        assert_eq!(problem(&text, None).unwrap(), text, "a problem is one already");
    }

    #[test]
    fn what_is_no_module_is_told() {
        assert!(problem("x = 1\n", None).unwrap_err().contains("class NAME(nn.Module)"));
        assert!(problem(MODULE, Some("Other")).unwrap_err().contains("no class Other"));
        assert!(problem(&MODULE.replace("x: torch.Tensor", "*xs"), None).unwrap_err().contains("`*xs`"));
    }
}

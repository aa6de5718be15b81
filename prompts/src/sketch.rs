//! The page that asks for an operator's sketch, and the reading of the reply (QiMeng-TensorOp §3.2).

use crate::{
    Prompt, Prompts, Unreadable,
    code::{block_of, code_text},
    hints::{For, Hints},
    primitives,
    words::{self, one_line},
};
use kernelbench::{Candidate, Failure, Language, Operator, Space, Task, load};
use metrics::{
    Machine, MachineKind,
    factors::{Factors, NAMES},
};
use minijinja::{Value, context};

/// A sketch as a reply holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// Its text, with placeholders.
    pub text: String,
    /// Its parameters.
    pub tuning: Space,
}

impl Prompts {
    /// Coder: the sketch; where an operator failed, it is to be mended.
    #[must_use]
    pub fn sketch(&self, task: &Task, machine: &Machine, last: Option<(&Operator, &Failure)>) -> Prompt {
        self.page("sketch", &values(task, machine, self.hints(), last))
    }

    /// Asks for an operator whole, in few lines, with parameters that can be tuned, or for another where that failed: the C
    /// code with tuning of QiMeng-TensorOp's Figure 4a.
    #[must_use]
    pub fn whole(&self, task: &Task, machine: &Machine, last: Option<(&Operator, &Failure)>) -> Prompt {
        self.page("whole", &values(task, machine, self.hints(), last))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, hints: &Hints, last: Option<(&Operator, &Failure)>) -> Value {
    let known = Factors::of(machine);
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        gpu => machine.kind == MachineKind::Gpu || task.is_cuda(),
        factors => factors(&known),
        hints => hinted(hints, For::Sketch, machine, &known),
        failure => last.map(|(_, failure)| words::failure(failure)),
        failed => last.map(|(operator, _)| operator.sketch.clone()),
        tuning => last.map(|(operator, _)| table(&operator.tuning)),
        primitives => last.and_then(|(operator, _)| primitives::text(operator)),
    }
}

/// Factors as pages name them.
pub(crate) fn factors(factors: &Factors) -> Vec<Value> {
    let what = |name: &str| NAMES.iter().find(|(_, known, _)| *known == name).map_or("", |(_, _, what)| what);
    let line =
        |factor: &metrics::factors::Factor| context! { what => what(&factor.name), value => one_line(&factor.value) };
    factors.factors.iter().map(line).collect()
}

/// Hints as pages name them.
pub(crate) fn hinted(hints: &Hints, part: For, machine: &Machine, factors: &Factors) -> Vec<Value> {
    let hint = |(technique, text): (String, String)| context! { technique, text };
    hints.rendered(part, machine, factors).into_iter().map(hint).collect()
}

/// A space as the table that a reply gives.
pub(crate) fn table(space: &Space) -> String {
    let values = |values: &[kernelbench::Parameter]| {
        let quoted = |value: &kernelbench::Parameter| match value {
            kernelbench::Parameter::Word(word) => format!("{word:?}"),
            other => other.to_string(),
        };
        values.iter().map(quoted).collect::<Vec<_>>().join(", ")
    };
    let lines = space.grid.iter().map(|(name, all)| format!("{name} = [{}]\n", values(all)));
    let always = space.constraints.iter().map(|text| format!("# always: {}\n", one_line(text)));
    lines.chain(always).collect()
}

/// Reads a sketch: the first block of code, which declares and calls `COMPUTE` and defines the entry, and a block of TOML.
///
/// # Errors
/// Where one is missing or wrong, in words.
pub fn read_sketch(reply: &str, task: &Task) -> Result<Sketch, Unreadable> {
    let text = text(reply)?;
    let calls = text.matches("COMPUTE").count();
    if calls < 2 {
        let why = if calls == 0 { "it never names" } else { "it declares and never calls" };
        return Err(Unreadable(format!(
            "{why} COMPUTE: the arithmetic of a tile is left to a call of COMPUTE, which is declared"
        )));
    }
    with_table(text, reply, task)
}

/// Reads an operator that was written whole: the first block of code, which defines the entry, and a block of TOML.
///
/// # Errors
/// Where one is missing or wrong, in words.
pub fn read_whole(reply: &str, task: &Task) -> Result<Sketch, Unreadable> {
    with_table(text(reply)?, reply, task)
}

fn text(reply: &str) -> Result<String, Unreadable> {
    Ok(format!("{}\n", code_text(reply)?.trim_end()))
}

fn with_table(text: String, reply: &str, task: &Task) -> Result<Sketch, Unreadable> {
    let entry = task.context().map_or("", |context| context.entry.as_str());
    if !text.contains(entry) {
        return Err(Unreadable(format!("it does not define `{entry}`")));
    }
    if task.language() == Language::Cuda && !text.contains("<<<") {
        return Err(Unreadable("it launches nothing: it chooses grid and block and launches its kernel".into()));
    }
    let tuning = match block_of(reply, "toml")? {
        Some(toml) => {
            let rows: toml::Table = toml.parse().map_err(|why| Unreadable(format!("its table is no TOML: {why}")))?;
            let rows = rows.get("tuning").and_then(toml::Value::as_table).cloned().unwrap_or(rows);
            load::parameters(&rows).map_err(Unreadable)?
        }
        None => Space::default(),
    };
    let tuning = Space::default().widened(&tuning).map_err(Unreadable)?;
    if let Some(name) = Candidate::new(text.clone()).placeholders().iter().find(|name| !tuning.grid.contains_key(*name))
    {
        return Err(Unreadable(format!("it writes {{{{{name}}}}}, and its table has no values for {name}")));
    }
    let operator = Operator { sketch: text, tuning, primitives: kernelbench::Primitives::None };
    operator.first().map_err(Unreadable)?;
    Ok(Sketch { text: operator.sketch, tuning: operator.tuning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    const CODE: &str =
        "extern \"C\" void COMPUTE(float *c);\nextern \"C\" void scale(float* out) {\n    COMPUTE(out + {{BM}});\n}\n";

    fn read(code: &str, table: &str) -> Result<Sketch, String> {
        read_sketch(&format!("```cpp\n{code}```\n\n```toml\n{table}```\n"), &example::task()).map_err(|why| why.0)
    }

    #[test]
    fn a_sketch_is_its_code_and_the_values_of_its_parameters() {
        let sketch = read(CODE, "BM = { values = [64, 32], constraint = \"BM % MR == 0\" }\nMR = [4]\n").unwrap();
        assert_eq!((sketch.text.as_str(), sketch.tuning.points()), (CODE, 2));
        assert_eq!(sketch.tuning.constraints, ["BM % MR == 0"]);
        let named = read(CODE, "[tuning]\nBM = [64]\n").unwrap();
        assert_eq!(named.tuning.points(), 1);
    }

    #[test]
    fn an_operator_that_is_whole_calls_nothing_and_has_a_table_too() {
        let whole = |code: &str| {
            read_whole(&format!("```cpp\n{code}```\n```toml\nBM = [64, 32]\n```\n"), &example::task()).map_err(|e| e.0)
        };
        let code = "extern \"C\" void scale(float* out) {\n    out[{{BM}}] = 1;\n}\n";
        assert_eq!(whole(code).unwrap().tuning.points(), 2);
        assert!(read(code, "BM = [64]\n").unwrap_err().contains("it never names COMPUTE"));
        assert!(whole(&code.replace("scale", "other")).unwrap_err().contains("does not define `scale`"));
        assert!(whole(&code.replace("BM", "BN")).unwrap_err().contains("no values for BN"));
    }

    #[test]
    fn what_is_no_sketch_is_told_in_a_sentence() {
        for (code, table, why) in [
            ("void scale() {}\n", "BM = [1]\n", "it never names COMPUTE"),
            ("void COMPUTE();\nvoid scale() {}\n", "BM = [1]\n", "it declares and never calls COMPUTE"),
            (&CODE.replace("scale", "scaled_"), "BM = [1]\n", "does not define `scale`"),
            (CODE, "MR = [1]\n", "it writes {{BM}}, and its table has no values for BM"),
            (CODE, "BM = 1\n", "has no values to choose from"),
            (CODE, "BM = { values = [64], constraint = \"BM > 64\" }\n", "no values of its parameters satisfy"),
            (CODE, "BM = { values = [64], constraint = \"BM % K == 0\" }\n", "names `K`"),
            (CODE, "BM == 1\n", "its table is no TOML"),
        ] {
            let code = if why.contains("define") { code.replace("scaled_", "other") } else { code.to_owned() };
            let told = read(&code, table).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}

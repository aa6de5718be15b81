//! The page that asks for an operator's primitives, and the reading of the reply (QiMeng-TensorOp §3.2).

use crate::{
    Prompt, Prompts, Unreadable,
    code::code_text,
    hints::{For, Hints},
    sketch::{factors, hinted, table},
    words,
};
use kernelbench::{Failure, Operator, Primitives, Task, assembly::Isa};
use metrics::{Machine, MachineKind, factors::Factors};
use minijinja::{Value, context};

impl Prompts {
    /// Coder: the primitives that an operator's sketch calls; with how it failed, they are to be mended.
    #[must_use]
    pub fn primitives(&self, task: &Task, machine: &Machine, operator: &Operator, failure: Option<&Failure>) -> Prompt {
        self.page("primitives", &values(task, machine, self.hints(), operator, failure))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    hints: &Hints,
    operator: &Operator,
    failure: Option<&Failure>,
) -> Value {
    let known = Factors::of(machine);
    let gpu = machine.kind == MachineKind::Gpu || task.is_cuda();
    let isa = Isa::of(&machine.arch.to_string()).unwrap_or(Isa::X86);
    let example = match isa {
        _ if gpu => "cuda",
        Isa::X86 => "x86",
        Isa::Neon => "neon",
        Isa::Rvv => "rvv",
    };
    let names: Vec<&str> = operator.tuning.grid.keys().map(String::as_str).collect();
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        gpu,
        isa => isa.name(),
        intel => isa == Isa::X86,
        example,
        cute => machine.facts.iter().find(|fact| fact.name == metrics::CUTE).map(|fact| fact.value.as_str()),
        what => if gpu { "source in CUDA C++" } else { "script" },
        fence => if gpu { "cuda" } else { "python" },
        names => if names.is_empty() { "there are none".to_owned() } else { names.join(", ") },
        sketch => operator.sketch.as_str(),
        tuning => table(&operator.tuning),
        factors => factors(&known),
        hints => hinted(hints, For::Primitives, machine, &known),
        failure => failure.map(words::failure),
        failed => failure.and_then(|_| text(operator)),
    }
}

/// The primitives' text, where there is one.
pub(crate) fn text(operator: &Operator) -> Option<String> {
    match &operator.primitives {
        Primitives::None => None,
        Primitives::Script(text) | Primitives::Source(text) => Some(text.clone()),
    }
}

/// Reads primitives: a script that prints assembly, or for a GPU their source.
///
/// # Errors
/// Where the reply holds no block of code, or no script.
pub fn read_primitives(reply: &str, task: &Task) -> Result<Primitives, Unreadable> {
    let text = format!("{}\n", code_text(reply)?.trim_end());
    if task.is_cuda() {
        return Ok(Primitives::Source(text));
    }
    if !text.contains("print") {
        return Err(Unreadable("its code block is no Python script that prints assembly".into()));
    }
    Ok(Primitives::Script(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_script_prints_and_a_gpus_primitives_are_source() {
        let read = read_primitives("```python\nprint('ret')\n```", &example::task());
        assert_eq!(read, Ok(Primitives::Script("print('ret')\n".into())));
        let why = read_primitives("```asm\nret\n```", &example::task()).unwrap_err().0;
        assert_eq!(why, "its code block is no Python script that prints assembly");
        let read = read_primitives("```cuda\n__device__ void COMPUTE() {}\n```", &example::bound());
        assert!(matches!(read, Ok(Primitives::Source(_))));
    }
}

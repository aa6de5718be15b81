//! Features in prompts: which the Judge is offered, which of its names count, and the examples that the Coder is given.

use crate::{Offered, Prompts, words::tokens};
use kernelbench::{
    Task,
    feature::{Cell, Column, Features},
};
use metrics::{Machine, Profile};
use minijinja::{Value, context};
use std::sync::{Arc, LazyLock};

/// Features that the Judge is offered, at most.
const OFFERED: usize = 3;
/// Tokens of the examples in a prompt, at most.
const MOST_TOKENS: usize = 4_000;

/// Those that come with the program, read when somebody first asks for them.
static EMBEDDED: LazyLock<Arc<Features>> = LazyLock::new(|| Arc::new(Features::embedded()));

impl Prompts {
    /// The same with these features.
    #[must_use]
    pub fn featuring(mut self, features: Features) -> Self {
        self.features = Some(Arc::new(features));
        self
    }

    /// The features there are.
    #[must_use]
    pub fn features(&self) -> &Features {
        self.features.as_ref().unwrap_or(&EMBEDDED)
    }

    /// The features of this machine that a task and its profile call for. What is to be stayed on comes first.
    #[must_use]
    pub fn offer(&self, task: &Task, machine: &Machine, profile: Option<&Profile>, stay: &[String]) -> Vec<Offered> {
        let features = self.features();
        let Some(column) = features.of_arch(&machine.arch) else { return vec![] };
        let staying = stay.iter().filter_map(|name| column.cell(name).ok());
        let staying = staying.map(|cell| (cell, vec!["it was asked for before, and has not run yet".to_owned()]));
        let chosen =
            features.choose(column, task, profile, OFFERED).into_iter().map(|choice| (choice.cell, choice.why));
        let mut all: Vec<(&Cell, Vec<String>)> = staying.collect();
        for (cell, why) in chosen {
            if !all.iter().any(|(known, _)| known.name == cell.name) {
                all.push((cell, why));
            }
        }
        all.truncate(OFFERED.max(stay.len()));
        all.into_iter().map(|(cell, why)| offered(cell, why)).collect()
    }

    /// The examples of these features of this machine, as many whole ones as there is room for.
    pub(crate) fn guides(&self, machine: &Machine, names: &[String]) -> Vec<Value> {
        let column = self.features().of_arch(&machine.arch);
        column.map_or(vec![], |column| guides(column, names))
    }
}

fn offered(cell: &Cell, why: Vec<String>) -> Offered {
    let (name, summary, coupled) = (cell.name.clone(), cell.summary.clone(), cell.coupled.clone());
    Offered { name, summary, why, coupled }
}

/// Of the features that a Judge named those that count: the first that it was offered, and with it what may come in one step.
#[must_use]
pub fn bundle(named: &[String], offered: &[Offered]) -> Vec<String> {
    let Some(first) = named.iter().find_map(|name| offered.iter().find(|one| one.name == *name)) else { return vec![] };
    let mut bundle = vec![first.name.clone()];
    for name in named {
        if first.coupled.contains(name) && !bundle.contains(name) {
            bundle.push(name.clone());
        }
    }
    bundle
}

/// The first feature's guide and kernel, then the guides of the others, then their kernels: what fits.
fn guides(column: &Column, names: &[String]) -> Vec<Value> {
    let cells: Vec<&Cell> = names.iter().filter_map(|name| column.cell(name).ok()).collect();
    let mut room = MOST_TOKENS;
    let mut holds = |text: &str| {
        let fits = tokens(text.len()) <= room;
        room -= if fits { tokens(text.len()) } else { 0 };
        fits
    };
    let mut shown: Vec<(bool, bool)> = cells.iter().map(|_| (false, false)).collect();
    for (at, cell) in cells.iter().enumerate() {
        shown[at].0 = holds(&cell.guide);
        if at == 0 {
            shown[at].1 = holds(cell.optimized());
        }
    }
    for (at, cell) in cells.iter().enumerate().skip(1) {
        shown[at].1 = shown[at].0 && holds(cell.optimized());
    }
    let told = cells.iter().zip(shown).filter(|(_, (guide, _))| *guide);
    told.map(|(cell, (_, kernel))| {
        let kernel = kernel.then(|| cell.optimized().trim_end());
        context! { name => cell.name.as_str(), text => below(&cell.guide), kernel }
    })
    .collect()
}

/// The values with these examples.
pub(crate) fn guided(guides: Vec<Value>, values: &Value) -> Value {
    context! { guides, ..values.clone() }
}

/// A guide whose headings are below those of the page.
fn below(guide: &str) -> String {
    let line = |line: &str| if line.starts_with('#') { format!("##{line}") } else { line.to_owned() };
    let lines: Vec<String> = guide.trim_end().lines().filter(|line| !line.starts_with("# ")).map(line).collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests;

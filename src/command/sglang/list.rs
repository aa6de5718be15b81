//! `warpsmith sglang list`: what can be taken out of this SGLang, and why not the rest?

use super::FrameworkArgs;
use crate::{
    command::{json, say},
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use serde_json::json;
use sglang::{
    inventory::{self, Found},
    operator::{self, Operator},
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  warpsmith sglang list
  warpsmith sglang list --sglang ~/sglang          # a source tree, which has the operators that are compiled ahead of time
  warpsmith sglang list --json | jq '.others[].why_not'";

/// `sglang list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub framework: FrameworkArgs,
    /// Every kernel that cannot be taken out, with its reason.
    #[arg(long)]
    pub all: bool,
    /// As JSON, with every reason.
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub(super) fn list(arguments: &ListArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let tree = arguments.framework.tree(layers)?;
    let operators = inventory::operators(&tree);
    let others: Vec<_> = inventory::all(&tree).into_iter().filter(|one| one.why_not.is_some()).collect();
    if arguments.json {
        let one = |(operator, why): &(Operator, Option<String>)| {
            let dtypes: Vec<_> = operator.dtypes.iter().map(|dtype| dtype.name()).collect();
            json!({"name": operator.name, "level": operator.level, "file": operator.file, "dtypes": dtypes, "notes": operator.notes, "why_not": why})
        };
        let operators: Vec<_> = operators.iter().map(one).collect();
        say(&json(&json!({"sglang": tree.root, "version": tree.version, "operators": operators, "others": others})));
        return Ok(Exit::Done);
    }
    say(&format!("SGLang {} in {}", tree.version, tree.root.display()));
    say("can be taken out:");
    for (operator, _) in operators.iter().filter(|(_, why)| why.is_none()) {
        let dtypes = operator.dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
        say(&format!("  {:<18} {}  {}  ({dtypes})", operator.name, operator.level.letter(), operator.file));
    }
    if arguments.all {
        cannot(&operators, others);
    } else {
        let known = operator::refused().iter().map(|refused| refused.names[0].as_str()).collect::<Vec<_>>().join(", ");
        let lacking = operators.iter().filter(|(_, why)| why.is_some()).count();
        say(&format!(
            "cannot: {} (--all says why): {lacking} that this version lacks, the others nobody has described or were refused: {known}",
            others.len() + lacking
        ));
    }
    Ok(Exit::Done)
}

/// What cannot be taken out, each with its reason.
fn cannot(operators: &[(Operator, Option<String>)], others: Vec<Found>) {
    say("cannot:");
    for (operator, why) in operators.iter().filter_map(|(operator, why)| Some((operator, why.as_ref()?))) {
        say(&format!("  {:<18} {}  {why}", operator.name, operator.level.letter()));
    }
    for other in others {
        let what = if other.files.is_empty() { other.name } else { other.files.join(", ") };
        say(&format!("  {what}  {}  {}: {}", other.level, other.place, other.why_not.unwrap_or_default()));
    }
}

//! `warpsmith sglang list`: what can be taken out of this SGLang, and why not the rest?

use super::FrameworkArgs;
use crate::{
    command::{json, say},
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use serde_json::json;
use sglang::inventory;

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
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub(super) fn list(arguments: &ListArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let tree = arguments.framework.tree(layers)?;
    let operators = inventory::operators(&tree);
    let others: Vec<_> = inventory::all(&tree).into_iter().filter(|one| one.why_not.is_some()).collect();
    if arguments.json {
        let one = |(operator, why): &(sglang::operator::Operator, Option<String>)| {
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
    say("cannot:");
    for (operator, why) in operators.iter().filter_map(|(operator, why)| Some((operator, why.as_ref()?))) {
        say(&format!("  {:<18} {}  {why}", operator.name, operator.level.letter()));
    }
    for other in others {
        let what = if other.files.is_empty() { other.name } else { other.files.join(", ") };
        say(&format!("  {what}  {}  {}: {}", other.level, other.place, other.why_not.unwrap_or_default()));
    }
    Ok(Exit::Done)
}

//! What can be asked about tensor operators: a task of a sentence, and the factors of a hardware.

use super::ModelArgs;
use clap::Args;
use std::path::PathBuf;

/// `ask`
#[derive(Debug, Args)]
pub struct AskArgs {
    /// The sentence: an operator (gemm, conv2d), its sizes, perhaps a precision, and the hardware.
    pub sentence: String,
    /// What reads a sentence that lacks something for the grammar, once: openai:NAME, mailbox:DIR or scripted:FILE; without
    /// it none is asked.
    #[arg(long, value_name = "SPEC")]
    pub model: Option<String>,
    /// With a mailbox as the model: end with code 10 once nothing but its reply is missing, instead of waiting.
    #[arg(long)]
    pub exit_when_waiting: bool,
    /// The folder to make [default: the operator with its sizes].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Make the folder without building the reference and comparing it with itself.
    #[arg(long)]
    pub untried: bool,
}

/// `hardware`
#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Which hardware; without a name, this machine's, and the names of the records.
    pub name: Option<String>,
    /// A manual in plain text, whose values are taken where they stand in it word for word; can be repeated. A model is asked
    /// once.
    #[arg(long, value_name = "FILE")]
    pub manual: Vec<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

//! `warpsmith init`: a task of a source.

use super::say;
use crate::{
    cli::InitArgs,
    exit::{Exit, Trouble},
    init,
};
use kernelbench::load;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Makes the task, reads it back, and says what to do next.
pub(super) fn init(arguments: &InitArgs) -> Result<Exit, Trouble> {
    let path = &arguments.source;
    let source = fs::read_to_string(path).map_err(|e| Trouble::usage(format!("{}: {e}", path.display())))?;
    let wrong = |why: String| Trouble::usage(format!("{}: {why}", path.display()));
    let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let language = match extension.as_str() {
        "py" => return module(arguments, &source),
        "c" => "c11",
        "cpp" | "cc" | "cxx" => "c++17",
        "cu" => "cuda",
        _ => return Err(wrong("expected a source in C, C++, CUDA or Python: .c, .cpp, .cu or .py".to_owned())),
    };
    let signature = init::signature(&source, extension == "c", arguments.entry.as_deref()).map_err(wrong)?;
    let reference = format!("reference.{extension}");
    let file = init::task_file(&signature, language, &reference).map_err(wrong)?;
    let folder = arguments.out.clone().unwrap_or_else(|| PathBuf::from(&signature.entry));
    fs::create_dir_all(&folder).map_err(|e| Trouble::usage(format!("{}: {e}", folder.display())))?;
    new_file(&folder.join("task.toml"), &file)?;
    new_file(&folder.join(&reference), &source)?;
    told(&folder, &folder.join(&reference))
}

fn module(arguments: &InitArgs, source: &str) -> Result<Exit, Trouble> {
    let wrong = |why: String| Trouble::usage(format!("{}: {why}", arguments.source.display()));
    let text = init::problem(source, arguments.entry.as_deref()).map_err(wrong)?;
    let stem = arguments.source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let path = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}_problem.py")));
    new_file(&path, &text)?;
    load::task(&path)?;
    say(&format!("{}: what it guesses is marked LOOK. Then:", path.display()));
    say(&format!("  warpsmith run {} --model openai:NAME", path.display()));
    Ok(Exit::Done)
}

/// Nothing that is there is written over.
fn new_file(path: &Path, text: &str) -> Result<(), Trouble> {
    let file = fs::File::options().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|e| Trouble::usage(format!("{}: {e}; --out names another place", path.display())))
}

fn told(folder: &Path, reference: &Path) -> Result<Exit, Trouble> {
    load::task(folder)?;
    let (folder, reference) = (folder.display(), reference.display());
    say(&format!("{folder}/task.toml: what it guesses is marked LOOK. To try it, and to work on it:"));
    say(&format!("  warpsmith evaluate {folder} {reference}     # the reference against itself: no difference"));
    say(&format!("  warpsmith run {folder} --model openai:NAME"));
    Ok(Exit::Done)
}

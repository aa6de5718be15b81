//! `warpsmith ask`: a task of one sentence

use super::{on_threads, say};
use crate::{
    ask::{Hardware, Said, made},
    cli::AskArgs,
    config::Layers,
    exit::{Exit, Trouble},
    wiring::{self, Kind},
};
use kernelbench::{Candidate, Provenance, Suite, Task, load};
use std::{
    fs,
    io::{BufRead, IsTerminal},
    path::{Path, PathBuf},
};

/// Makes the task's folder; it stays only if its reference builds and agrees with itself on the small cases.
pub(super) fn ask(arguments: &AskArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let (sentence, said) = complete(arguments.sentence.clone())?;
    let made = made(&sentence, &said, memory(&said)).map_err(Trouble::usage)?;
    let name =
        || made.task.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"').map(PathBuf::from));
    let folder = arguments.out.clone().or_else(name).unwrap_or_else(|| PathBuf::from("operator"));
    if folder.exists() && fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Trouble::usage(format!("{}: this folder is not empty; --out names another", folder.display())));
    }
    let wrong = |e: std::io::Error| Trouble::usage(format!("{}: {e}", folder.display()));
    fs::create_dir_all(&folder).map_err(wrong)?;
    let written = fs::write(folder.join("task.toml"), &made.task)
        .and_then(|()| fs::write(folder.join(&made.reference), &made.source))
        .map_err(wrong);
    let tried = written.and_then(|()| tried(&folder, arguments.untried, layers));
    match tried {
        Ok(told) => {
            made.chosen.iter().for_each(|line| say(line));
            say(&told);
            say(&format!("{}: to work on it:", folder.display()));
            say(&format!("  warpsmith run {} --policy qimeng --model openai:NAME", folder.display()));
            Ok(Exit::Done)
        }
        Err(why) => {
            // What was made here is no task: it goes.
            let _ = fs::remove_dir_all(&folder);
            Err(why)
        }
    }
}

/// A sentence that lacks nothing: what is missing is asked for on a terminal.
fn complete(mut sentence: String) -> Result<(String, Said), Trouble> {
    loop {
        let said = Said::read(&sentence);
        let questions = said.questions();
        let Some(question) = questions.first() else { return Ok((sentence, said)) };
        if !std::io::stdin().is_terminal() {
            return Err(Trouble::usage(format!("the sentence lacks something. {}", questions.join(" "))));
        }
        say(question);
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer).map_err(|e| Trouble::usage(e.to_string()))?;
        if read == 0 || answer.trim().is_empty() {
            return Err(Trouble::usage(question.clone()));
        }
        sentence = format!("{sentence}, {}", answer.trim());
    }
}

/// This machine's memory in bytes, where the operator runs on its processor.
fn memory(said: &Said) -> Option<u64> {
    let here = said.hardware == Some(Hardware::ThisCpu);
    let text = fs::read_to_string("/proc/meminfo").ok().filter(|_| here)?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Builds the reference and compares it with itself; nothing else of a task is run unasked.
fn tried(folder: &Path, untried: bool, layers: &Layers) -> Result<String, Trouble> {
    let task = load::task(folder)?;
    if untried {
        return Ok("not tried: --untried".to_owned());
    }
    let kind = Kind::of(&task, false);
    if task.is_cuda() && !wiring::has_gpu() {
        return Ok("not tried: there is no NVIDIA GPU here".to_owned());
    }
    let workshop = wiring::workshop(kind, &layers.config, false, None)?;
    let candidate = Candidate::new(task.reference_as_candidate());
    let outcome = on_threads(async {
        let built = match workshop.build(&task, &candidate).await? {
            Ok(built) => built,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(workshop.check(&task, built, &small(&task)).await?.map(drop))
    })?;
    match outcome {
        Ok(()) => Ok("the reference builds, and agrees with itself on the small cases".to_owned()),
        Err(failure) => Err(Trouble::usage(format!("the reference fails: {failure}; nothing was kept"))),
    }
}

/// The cases but the one that was asked for, which may take minutes.
fn small(task: &Task) -> Suite {
    let cases = task.cases.iter().filter(|case| case.name != "asked").cloned().collect();
    Suite { provenance: Provenance::Task, cases, timed: vec![] }
}

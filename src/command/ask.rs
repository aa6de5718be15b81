//! `warpsmith ask`: a task of one sentence

use super::{on_threads, once::Once, say};
use crate::{
    ask::{Hardware, Here, OpenBlas, Said, filled, has_cublas, has_cudnn, made, sayable, words},
    cli::AskArgs,
    config::Layers,
    exit::{Exit, Trouble},
    key::Environment,
    wiring::{self, Kind},
};
use agents::llm::Purpose;
use kernelbench::{Case, LARGEST_EMULATED_CASE, Provenance, Suite, Task, TimingPlan, load, plain};
use std::{
    fs,
    io::{BufRead, IsTerminal},
    path::{Path, PathBuf},
};

/// Makes the task's folder; it stays only if its reference builds and agrees with itself on the small cases.
pub(super) fn ask(arguments: &AskArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let lacking = !Said::read(&arguments.sentence).questions().is_empty();
    let read = match arguments.model.as_deref().filter(|_| lacking) {
        Some(model) => Some(read_by(model, arguments, layers, environment)?),
        None => None,
    };
    let hint = if read.is_some() { "" } else { " Or --model openai:NAME has a model read it." };
    let (words, said) = complete(read.clone().unwrap_or_else(|| arguments.sentence.clone()), hint)?;
    let sentence = if read.is_some() { format!("{} (read as: {words})", arguments.sentence) } else { words };
    let (openblas, cublas, cudnn) = (OpenBlas::here(), has_cublas(), has_cudnn());
    let here = Here { memory: memory(&said), openblas, cublas, cudnn };
    let made = made(&sentence, &said, &here).map_err(Trouble::usage)?;
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
        .and_then(|()| made.baseline.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)))
        .map_err(wrong);
    let tried = written.and_then(|()| tried(&folder, arguments.untried, layers));
    match tried {
        Ok(told) => {
            made.chosen.iter().for_each(|line| say(line));
            say(&told);
            too_large(&folder, layers)?.iter().for_each(|line| say(line));
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

/// A sentence in the grammar's words, of which a model filled what was missing: one call, of which only what has words of the
/// sentence is believed.
fn read_by(model: &str, arguments: &AskArgs, layers: &Layers, environment: &Environment) -> Result<String, Trouble> {
    let (config, sentence, wanted) = (&layers.config, &arguments.sentence, sayable());
    let once = Once {
        config,
        environment,
        exit_when_waiting: arguments.exit_when_waiting,
        model,
        command: "ask",
        purpose: Purpose::Sentence,
    };
    let prompt = super::prompts::library(config)?.sentence(sentence, &wanted);
    let (facts, mut dropped) = once.ask(prompt, |reply| prompts::read_facts(reply, sentence, &wanted))?;
    let (said, unknown) = filled(&Said::read(sentence), &facts);
    dropped.extend(unknown);
    let words = words(&said);
    say(&format!("read by {model} as: {}", plain(&words)));
    for why in &dropped {
        say(&format!("dropped: {}", plain(why)));
    }
    Ok(words)
}

/// A sentence that lacks nothing: what is missing is asked for on a terminal, and elsewhere told, with what else could be done.
fn complete(mut sentence: String, hint: &str) -> Result<(String, Said), Trouble> {
    loop {
        let said = Said::read(&sentence);
        let questions = said.questions();
        let Some(question) = questions.first() else { return Ok((sentence, said)) };
        if !std::io::stdin().is_terminal() {
            return Err(Trouble::usage(format!("the sentence lacks something. {}{hint}", questions.join(" "))));
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

/// Builds the reference and its baselines and compares them; nothing else of a task is run unasked.
fn tried(folder: &Path, untried: bool, layers: &Layers) -> Result<String, Trouble> {
    let task = load::task(folder)?;
    if untried {
        return Ok("not tried: --untried".to_owned());
    }
    let kind = Kind::of(&task, false);
    if task.is_cuda() && !wiring::has_gpu() {
        return Ok("not tried: there is no NVIDIA GPU here".to_owned());
    }
    let workshop = match wiring::workshop(kind, &layers.config, false, None) {
        Err(why) if task.processor().is_some() || task.gfx().is_some() => return Ok(format!("not tried: {why}")),
        other => other?,
    };
    let suite = small(&task);
    on_threads(async { Ok(workshop.prepare(&task, &suite, &BRIEF).await?) })?;
    let names: Vec<&str> = task.baselines().kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let with = if names.is_empty() { String::new() } else { format!(", and with {}", names.join(" and ")) };
    Ok(format!("the reference builds, and agrees with itself{with} on the small cases"))
}

/// What to do where the case that was asked for is larger than what is run as it stands.
fn too_large(folder: &Path, layers: &Layers) -> Result<Option<String>, Trouble> {
    let task = load::task(folder)?;
    let asked = task.cases.iter().find(|case| case.name == "asked");
    let bytes = asked.and_then(|case| task.context()?.bytes(case).ok()).unwrap_or(0);
    let takes = |what: &str| format!("note: a call takes {} MiB of arguments, {what}", bytes >> 20);
    if task.processor().is_some() {
        let most = LARGEST_EMULATED_CASE >> 20;
        let what = format!("and on a processor that is emulated it may take {most}: ask for smaller sizes");
        return Ok((bytes > LARGEST_EMULATED_CASE).then(|| takes(&what)));
    }
    let needed = wiring::largest_case_for(bytes, task.is_cuda(), &layers.config);
    Ok(needed.map(|needed| {
        takes(&format!(
            "more than is run as it stands: put `largest_case_mib = {needed}` under [workshop] into warpsmith.toml"
        ))
    }))
}

/// Times are none of its business.
const BRIEF: TimingPlan = TimingPlan::median_of(1, 1);

/// The cases but the one that was asked for, which may take minutes.
fn small(task: &Task) -> Suite {
    let cases: Vec<Case> = task.cases.iter().filter(|case| case.name != "asked").cloned().collect();
    let timed = cases.first().map(|case| case.name.clone()).into_iter().collect();
    Suite { provenance: Provenance::Task, cases, timed }
}

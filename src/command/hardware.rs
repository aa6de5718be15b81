//! `warpsmith hardware`: what is known of a hardware, each factor with its source

use super::{once::Once, say};
use crate::{
    cli::HardwareArgs,
    config::{Config, Layers},
    exit::{Exit, Trouble},
    key::Environment,
    wiring,
};
use agents::llm::Purpose;
use kernelbench::{cpu, gpu::Gpu, plain};
use metrics::{
    Fact, Machine, MachineKind,
    factors::{Factor, Factors, NAMES, records},
};
use prompts::{Manual, hints::Hints};
use std::{fs, path::Path};

/// The largest manual that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// The largest hint, in bytes.
const LARGEST_HINT: u64 = 1 << 20;
/// The folder of a user's own hints in the working directory.
const USUAL_FOLDER: &str = "hints";

/// Prints the factors of a hardware.
pub(super) fn hardware(
    arguments: &HardwareArgs,
    mut layers: Layers,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    arguments.model.apply(&mut layers);
    let machine = cpu::machine(wiring::cache_folder(&layers.config).ok().as_deref());
    let here = arguments.name.as_deref().is_none_or(|name| is_this(name, &machine.name));
    let name = arguments.name.clone().unwrap_or_else(|| machine.name.clone());
    let mut found = records::named(&name);
    if here {
        found.get_or_insert_default().extend(Factors::of(&machine).factors);
    }
    let gpus = gpus();
    if let Some((_, told)) = gpus.iter().find(|(own, _)| arguments.name.as_ref().is_some_and(|name| is_this(name, own)))
    {
        found.get_or_insert_default().extend(told.iter().cloned());
    }
    let (manual, dropped) = of_manuals(arguments, &name, &machine, &layers.config, environment)?;
    if !arguments.manual.is_empty() {
        found.get_or_insert_default().extend(manual);
    }
    let found = found.ok_or_else(|| {
        let known = records::names().collect::<Vec<_>>().join(", ");
        Trouble::usage(format!(
            "there is no record of {name:?}: there are {known}; --manual FILE takes its factors from a manual"
        ))
    })?;
    let factors = Factors::merged(&name, found);
    if arguments.json {
        say(&super::json(&factors));
    } else {
        say(&lines(&factors, &dropped).join("\n"));
        if arguments.name.is_none() {
            for (name, told) in gpus {
                let record = records::named(&name).unwrap_or_default();
                say(&lines(&Factors::merged(&name, told.into_iter().chain(record)), &[]).join("\n"));
            }
            say(&format!("records: {}", records::names().collect::<Vec<_>>().join(", ")));
        }
    }
    Ok(Exit::Done)
}

/// The kinds of GPU that this machine has, by name, and what the driver says of the first of each.
fn gpus() -> Vec<(String, Vec<Factor>)> {
    let mut found: Vec<(String, Vec<Factor>)> = vec![];
    for gpu in (0..Gpu::visible()).filter_map(|ordinal| Gpu::at(ordinal).ok()) {
        let Some(name) = gpu.name().filter(|name| found.iter().all(|(known, _)| known != name)) else { continue };
        let told: Vec<Fact> = gpu.told().into_iter().chain(gpu.cache()).collect();
        found.push((name, Factors::told(MachineKind::Gpu, &told)));
    }
    found
}

/// Whether a name is that of this processor or GPU, in words that stand in it.
fn is_this(name: &str, own: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| c.is_whitespace() || c == '-').filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (name, own) = (words(name), words(own));
    !name.is_empty() && name.iter().all(|word| own.contains(word))
}

fn lines(factors: &Factors, dropped: &[String]) -> Vec<String> {
    let what = |name: &str| NAMES.iter().find(|(_, known, _)| *known == name).map_or("", |(_, _, what)| what);
    let line = |factor: &Factor| {
        format!("  {:<48} {:<32} {}", what(&factor.name), plain(&factor.value), plain(&factor.source))
    };
    let mut lines = vec![plain(&factors.hardware)];
    lines.extend(factors.factors.iter().map(line));
    for factor in &factors.conflicts {
        lines.push(format!(
            "  conflict: {}: {} by {}",
            what(&factor.name),
            plain(&factor.value),
            plain(&factor.source)
        ));
    }
    lines.extend(dropped.iter().map(|why| format!("  dropped: {}", plain(why))));
    lines
}

/// What manuals say: one call of a model, of which only what stands in them word for word is believed.
fn of_manuals(
    arguments: &HardwareArgs,
    name: &str,
    machine: &Machine,
    config: &Config,
    environment: &Environment,
) -> Result<(Vec<Factor>, Vec<String>), Trouble> {
    if arguments.manual.is_empty() {
        return Ok((vec![], vec![]));
    }
    let manuals = arguments.manual.iter().map(|file| manual(file)).collect::<Result<Vec<Manual>, Trouble>>()?;
    let passages = prompts::passages(name, &manuals).map_err(Trouble::usage)?;
    if config.model.spec.is_empty() {
        return Err(Trouble::usage("--manual asks a model once: name it with --model openai:NAME"));
    }
    let once = Once {
        config,
        environment,
        exit_when_waiting: arguments.model.exit_when_waiting,
        model: &config.model.spec,
        command: "hardware",
        purpose: Purpose::Extract,
    };
    let prompt = super::prompts::library(config)?.extract(name, machine, &passages);
    once.ask(prompt, |reply| prompts::read_factors(reply, &manuals))
}

fn manual(file: &Path) -> Result<Manual, Trouble> {
    let wrong = |why: String| Trouble::usage(format!("{}: {why}", file.display()));
    let about = fs::metadata(file).map_err(|e| wrong(e.to_string()))?;
    if about.len() > LARGEST {
        return Err(wrong(format!("a manual is not larger than {} MiB", LARGEST >> 20)));
    }
    let bytes = fs::read(file).map_err(|e| wrong(e.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| wrong("this manual is no plain text: convert it first (of a PDF: pdftotext)".to_owned()))?;
    Ok((file.file_name().unwrap_or_default().to_string_lossy().into_owned(), text))
}

/// The hints in force: those that come with the program, with those of the user's folder beside or in their place.
pub(super) fn hints(config: &Config) -> Result<Hints, Trouble> {
    let named = &config.prompts.hints;
    let folder = Path::new(if named.is_empty() { USUAL_FOLDER } else { named });
    if named.is_empty() && !folder.is_dir() {
        return Ok(Hints::embedded());
    }
    let wrong = |why: String| Trouble::usage(format!("{} (prompts.hints): {why}", folder.display()));
    let entries = fs::read_dir(folder).map_err(|e| wrong(e.to_string()))?;
    let mut files = vec![];
    for path in entries.flatten().map(|entry| entry.path()) {
        let small = fs::metadata(&path).is_ok_and(|about| about.is_file() && about.len() <= LARGEST_HINT);
        if small && path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).map_err(|e| wrong(format!("{}: {e}", path.display())))?;
            files.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text));
        }
    }
    Hints::embedded().with(files).map_err(|why| wrong(why.to_string()))
}

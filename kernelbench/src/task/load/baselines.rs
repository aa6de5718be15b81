//! A task's `[[baseline]]`s, what it is timed `against`, and its `[oracle]`.

use super::{
    Document, TaskError,
    file::{BaselineFile, OracleFile, TimingFile},
    is_plain_name, reference,
};
use crate::task::{
    Case,
    baseline::{BaselineKernel, Baselines, Oracle, REFERENCE, is_library, is_steering},
};
use std::collections::BTreeMap;
use toml::Spanned;

const NAME_HELP: &str = "expected up to 64 letters, digits, `_`, `-` and `.`, another than those of the other baselines, and not \
     \"reference\"";
const LINK_HELP: &str = "expected a library as a linker names it: \"openblas\" for libopenblas.so";
const ENVIRONMENT_HELP: &str = "expected a variable that steers a library, such as OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, MKL_.., BLIS_.. or \
     CUBLAS_.., with a value without blanks or `/`";

/// The heading's part of a task file that baselines need.
pub(super) struct Wanted<'a> {
    pub(super) entry: &'a str,
    pub(super) cases: [&'a [Case]; 2],
}

/// Reads them all.
pub(super) fn baselines(
    document: &Document<'_>,
    files: Vec<BaselineFile>,
    (timing, oracle): (Option<&TimingFile>, Option<OracleFile>),
    wanted: &Wanted<'_>,
) -> Result<Baselines, TaskError> {
    let mut baselines = Baselines::default();
    for file in files {
        let kernel = kernel(document, file, &baselines, wanted)?;
        baselines.kernels.push(kernel);
    }
    let against = timing.and_then(|timing| timing.against.as_ref());
    baselines.against = match against.filter(|name| name.get_ref() != REFERENCE) {
        Some(name) => Some(known(document, name, &baselines)?),
        None => None,
    };
    baselines.oracle = oracle.map(|file| self::oracle(document, file, &baselines, wanted)).transpose()?;
    Ok(baselines)
}

fn known(document: &Document<'_>, name: &Spanned<String>, baselines: &Baselines) -> Result<String, TaskError> {
    if baselines.named(name.get_ref()).is_some() {
        return Ok(name.get_ref().clone());
    }
    let names: Vec<&str> = baselines.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let help = format!(
        "expected the name of a [[baseline]]: {}",
        if names.is_empty() { "there is none".to_owned() } else { names.join(", ") }
    );
    document.error(name, "there is no baseline of this name", help)
}

fn kernel(
    document: &Document<'_>,
    file: BaselineFile,
    before: &Baselines,
    wanted: &Wanted<'_>,
) -> Result<BaselineKernel, TaskError> {
    let name = file.name.get_ref();
    if !is_plain_name(name) || name == REFERENCE || before.named(name).is_some() {
        return document.error(&file.name, "this cannot be a baseline's name", NAME_HELP);
    }
    if let Some(library) = file.link.iter().find(|library| !is_library(library.get_ref())) {
        return document.error(library, "this is no library's name", LINK_HELP);
    }
    let odd = file.environment.iter().find(|(name, value)| !is_steering(name.get_ref(), value.get_ref()));
    if let Some((name, _)) = odd {
        return document.error(name, "a baseline cannot be given this variable", ENVIRONMENT_HELP);
    }
    Ok(BaselineKernel {
        source: reference::beside(document, &file.source, wanted.entry)?,
        name: file.name.into_inner(),
        link: file.link.into_iter().map(Spanned::into_inner).collect(),
        environment: plain(file.environment),
        forbid: file.forbid,
    })
}

fn plain(environment: BTreeMap<Spanned<String>, Spanned<String>>) -> BTreeMap<String, String> {
    environment.into_iter().map(|(name, value)| (name.into_inner(), value.into_inner())).collect()
}

fn oracle(
    document: &Document<'_>,
    file: OracleFile,
    baselines: &Baselines,
    wanted: &Wanted<'_>,
) -> Result<Oracle, TaskError> {
    let baseline = known(document, &file.baseline, baselines)?;
    let [cases, final_cases] = wanted.cases;
    let has = |name: &str| cases.iter().chain(final_cases).any(|case| case.name == name);
    if let Some(unknown) = file.cases.iter().find(|name| !has(name.get_ref())) {
        return document.error(unknown, "there is no case of this name", "expected names of cases, of either kind");
    }
    let large = |case: &Case| file.cases.iter().any(|name| *name.get_ref() == case.name);
    if cases.iter().all(large) {
        let help = "leave at least one [[case]] to the reference: an oracle has to agree with it before it is believed";
        return document.error(&file.baseline, "this oracle would answer for every case", help);
    }
    Ok(Oracle { baseline, cases: file.cases.into_iter().map(Spanned::into_inner).collect() })
}

//! Shared objects in CUDA: what a candidate, a task's reference and its baselines are built with.

use super::Kernel;
use crate::{
    build::{
        cc,
        nvcc::{Libraries, Nvcc},
        unit,
    },
    engine::{backend::Toolchain, contents::context},
    result::{
        candidate::Candidate,
        error::{Attempt, outcome},
        failure::{Failure, Fault},
    },
    task::{Task, baseline::BaselineKernel, library},
};

/// The reference. It is built as a candidate is, and so once for both.
pub(super) fn of_reference(nvcc: &Nvcc, task: &Task, toolchain: Toolchain) -> Attempt<Kernel> {
    let forbidden = task.baselines().forbidden();
    built(nvcc, task, task.reference(), &Libraries { link: &[], forbidden: &forbidden }, toolchain)
}

/// A candidate, in which no use of a forbidden library shows.
pub(super) fn of_candidate(nvcc: &Nvcc, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Kernel> {
    let (text, forbidden) = (unit::text(context(task)?, candidate)?, task.baselines().forbidden());
    library::refuse(&forbidden, |library| library.in_text(&text))?;
    built(nvcc, task, &text, &Libraries { link: &[], forbidden: &forbidden }, toolchain)
}

/// A baseline, with the libraries that it calls.
pub(super) fn of_baseline(nvcc: &Nvcc, task: &Task, kernel: &BaselineKernel, toolchain: Toolchain) -> Attempt<Kernel> {
    if !kernel.is_harmless() {
        let why = "it links or sets what no baseline may: read its task from a folder anew";
        return Err(kernel.unusable(why).into());
    }
    let libraries = Libraries { link: &kernel.link, forbidden: &[] };
    match outcome(built(nvcc, task, &kernel.source, &libraries, toolchain))? {
        Ok(object) => Ok(Kernel { of_baseline: Some(kernel.environment.clone()), ..object }),
        Err(failure) => Err(unbuilt(kernel, failure).into()),
    }
}

fn unbuilt(kernel: &BaselineKernel, failure: Failure) -> Fault {
    match failure {
        Failure::Build { log } | Failure::Interface { log } => kernel.unbuilt(&log),
        failure => kernel.unusable(failure),
    }
}

fn built(nvcc: &Nvcc, task: &Task, source: &str, libraries: &Libraries<'_>, toolchain: Toolchain) -> Attempt<Kernel> {
    let context = context(task)?;
    let (object, folder) = match toolchain {
        Toolchain::Quick => (nvcc.build(context, source, libraries)?, None),
        Toolchain::Stock => {
            let folder = cc::private_folder(&std::env::temp_dir())?;
            (nvcc.build_anew(context, source, libraries, folder.path())?, Some(folder))
        }
    };
    Ok(Kernel { object, process: None, free_at_first: 0, of_baseline: None, _folder: folder })
}

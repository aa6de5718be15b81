//! Which features of the architecture are models told of: what the settings, the policy and the GPU say together.

use crate::{
    command::features,
    config::{Config, Word},
    exit::Trouble,
    wiring::{self, Kind},
};
use agents::policy::{Guidance, Policy};
use kernelbench::feature::{Column, Features};

/// The features in force, and the column that models are told of.
#[derive(Clone, Debug)]
pub struct Told {
    /// All there are.
    pub features: Features,
    /// That of the GPU.
    pub column: Column,
}

/// What a new run tells models, and writes down in its policy: where nobody says, the guides of a GPU that has a column.
///
/// # Errors
///
/// If the user's own features cannot be read.
pub fn decide(policy: &mut Policy, kind: Kind, config: &Config) -> Result<Option<Told>, Trouble> {
    let undecided = policy.features.is_none() && matches!(kind, Kind::Cuda | Kind::Problems);
    if undecided && wiring::gpu_arch(config).is_some() {
        let told = told(kind, config)?;
        policy.features = told.as_ref().map(|_| Guidance::Guides);
        return Ok(told);
    }
    recorded(policy, kind, config)
}

/// What is said of it before a run: nothing where nobody asks for features.
#[must_use]
pub fn line(policy: &Policy, told: Option<&Told>) -> Option<String> {
    let how = policy.features.filter(|how| *how != Guidance::Off)?;
    Some(match told {
        Some(told) => format!("features   {} of {}", how.word(), told.column.title),
        None => "features   none: there are none for this machine".to_owned(),
    })
}

/// What a run tells models that wrote its policy down earlier: nothing where its policy says nothing.
///
/// # Errors
///
/// If the user's own features cannot be read.
pub fn recorded(policy: &Policy, kind: Kind, config: &Config) -> Result<Option<Told>, Trouble> {
    match policy.features {
        None | Some(Guidance::Off) => Ok(None),
        Some(_) => told(kind, config),
    }
}

/// The features, and the column of the GPU; a simulation pretends to have that of the first.
fn told(kind: Kind, config: &Config) -> Result<Option<Told>, Trouble> {
    let features = features::library(config)?;
    let column = match kind {
        Kind::Simulated => features.columns().first(),
        Kind::Cuda | Kind::Problems => wiring::gpu_arch(config).and_then(|arch| features.of_arch(&arch)),
        Kind::Native | Kind::Vulkan | Kind::Emulated(_) | Kind::Compiled(_) => None,
    };
    let column = column.cloned();
    Ok(column.map(|column| Told { features, column }))
}

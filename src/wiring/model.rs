//! What answers?

use crate::{
    config::{Config, RoleModel, Spec},
    exit::{Exit, Trouble},
    key::Environment,
    recall,
    store::RunFolder,
};
#[cfg(feature = "batch-api")]
use agents::llm::openai::{Batched, Batching};
use agents::llm::{
    AskError, Llm, Role,
    chat::{Sampling, Samplings},
    mailbox::Mailbox,
    openai::{Key, OpenAi, Options},
    price::PriceTable,
    replay::Replay,
    scripted::Scripted,
    seeded::Seeded,
};
use std::{path::Path, sync::Arc, time::Duration};

/// All that a model's port is made from.
pub struct Answering<'a> {
    /// The settings.
    pub config: &'a Config,
    /// The environment's key and URL.
    pub environment: &'a Environment,
    /// Whether a run that waits for letters ends instead.
    pub exit_when_waiting: bool,
    /// The run's name, for the letters.
    pub run: String,
    /// The run's folder, where batches are remembered. It may not be there yet.
    pub folder: &'a Path,
}

impl Answering<'_> {
    /// The port to what answers.
    ///
    /// # Errors
    ///
    /// If there is no key, no such file, or no such run.
    pub fn port(&self, spec: &Spec) -> Result<Arc<dyn Llm>, Trouble> {
        let llm = self.asked(spec)?;
        let run = &self.config.run.first_candidates;
        if run.is_empty() {
            return Ok(llm);
        }
        let seeds = recall::seeds(&RunFolder::open(Path::new(run))?)?;
        Ok(Arc::new(Seeded::new(llm, run.as_str(), seeds)))
    }

    fn asked(&self, spec: &Spec) -> Result<Arc<dyn Llm>, Trouble> {
        Ok(match spec {
            Spec::OpenAi(name) => Arc::new(OpenAi::new(self.endpoint(name)?).map_err(refused)?),
            #[cfg(feature = "batch-api")]
            Spec::OpenAiBatch(name) => self.batched(name)?,
            #[cfg(not(feature = "batch-api"))]
            Spec::OpenAiBatch(_) => {
                return Err(Trouble::not_built_in("openai-batch:NAME, OpenAI's Batch API,", "batch-api"));
            }
            Spec::Replay(run) => Arc::new(self.replay(run)?),
            Spec::Scripted(file) => Arc::new(Scripted::read(file).map_err(refused)?),
            Spec::Mailbox(folder) => {
                let letters = Mailbox::new(folder, self.samplings("mailbox")).prefix(&self.run);
                Arc::new(letters.exit_when_waiting(self.exit_when_waiting))
            }
        })
    }

    #[cfg(feature = "batch-api")]
    fn batched(&self, name: &str) -> Result<Arc<dyn Llm>, Trouble> {
        let window = Duration::from_secs(self.config.model.batch_window_s);
        let batching = Batching { window, ..Batching::new(self.folder.join(BATCHES)) };
        Ok(Arc::new(Batched::new(self.endpoint(name)?, batching).map_err(refused)?))
    }

    fn endpoint(&self, name: &str) -> Result<Options, Trouble> {
        let model = &self.config.model;
        let secret = self.environment.key_for(model)?;
        let key = secret.map(|secret| Key::new(secret.reveal())).transpose().map_err(refused)?;
        let named = self.environment.base_url_for(model);
        let base_url = if named.is_empty() { Options::OPENAI.to_owned() } else { named };
        if key.is_none() && base_url == Options::OPENAI {
            return Err(Trouble::usage(NO_KEY));
        }
        Ok(Options {
            prices: prices(&model.prices)?,
            request_timeout: Duration::from_secs(model.request_timeout_s),
            deadline: Duration::from_secs(model.deadline_s),
            retries: model.retries,
            patience: Duration::from_secs(model.patience_s),
            in_flight: model.in_flight,
            ..Options::new(base_url, key, self.samplings(name))
        })
    }

    fn replay(&self, run: &Path) -> Result<Replay, Trouble> {
        let record = RunFolder::open(run)?.only_record()?;
        let strict = self.config.run.strict_replay;
        Ok(Replay::new(run.display().to_string(), recall::answers(&record)?, strict))
    }

    fn samplings(&self, name: &str) -> Samplings {
        let own = |role: &RoleModel| Sampling {
            model: role.model.clone().unwrap_or_else(|| name.to_owned()),
            temperature: role.temperature,
            max_completion_tokens: role.max_tokens,
            reasoning_effort: role.reasoning_effort.clone(),
        };
        let add = |all: Samplings, (role, settings): (&Role, &RoleModel)| all.with(*role, own(settings));
        self.config.model.roles.iter().fold(Samplings::all(Sampling::model(name)), add)
    }
}

/// The models of this specification whose price is not known.
///
/// # Errors
///
/// If the settings name a file of prices that cannot be read.
pub fn unpriced(config: &Config, spec: &Spec) -> Result<Vec<String>, Trouble> {
    let (Spec::OpenAi(name) | Spec::OpenAiBatch(name)) = spec else { return Ok(vec![]) };
    let prices = prices(&config.model.prices)?;
    let roles = Role::ALL.iter().map(|role| config.model.roles.get(role).and_then(|own| own.model.as_ref()));
    let mut models: Vec<String> = roles.map(|own| own.unwrap_or(name).clone()).collect();
    models.sort();
    models.dedup();
    models.retain(|model| prices.price(model).is_none());
    Ok(models)
}

/// The file of a run that remembers the batches of its model.
#[cfg(feature = "batch-api")]
const BATCHES: &str = "openai-batches.jsonl";

const NO_KEY: &str = "there is no key: set OPENAI_API_KEY, or model.api_key or model.api_key_file in warpsmith.toml; \
                      for another endpoint than OpenAI's own, set OPENAI_BASE_URL or model.base_url";

/// The program's own prices, with those of this file in their place.
fn prices(file: &str) -> Result<PriceTable, Trouble> {
    let own = PriceTable::embedded();
    if file.is_empty() {
        return Ok(own);
    }
    let wrong = |why: String| Trouble::usage(format!("{file} (model.prices): {why}"));
    let text = std::fs::read_to_string(file).map_err(|e| wrong(format!("cannot read the prices: {e}")))?;
    Ok(own.overridden_by(PriceTable::parse(&text).map_err(wrong)?))
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn refused(error: AskError) -> Trouble {
    Trouble { exit: Exit::Usage, message: error.to_string() }
}

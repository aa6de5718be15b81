//! What answers?

use crate::{
    config::{Config, RoleModel, Secret, Spec},
    exit::{Exit, Trouble},
    key::Environment,
    recall,
    store::RunFolder,
};
#[cfg(feature = "batch-api")]
use agents::llm::openai::{Batched, Batching};
use agents::llm::{
    Answer, AskError, Call, Llm, Role,
    chat::{Sampling, Samplings},
    mailbox::Mailbox,
    openai::{Key, OpenAi, Options},
    per_role::PerRole,
    price::PriceTable,
    replay::Replay,
    scripted::Scripted,
    seeded::Seeded,
};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

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
            Spec::OpenAi(name) => self.endpoints(name)?,
            #[cfg(feature = "batch-api")]
            Spec::OpenAiBatch(name) => self.batched(name)?,
            #[cfg(not(feature = "batch-api"))]
            Spec::OpenAiBatch(_) => {
                return Err(Trouble::not_built_in("openai-batch:NAME, OpenAI's Batch API,", "batch-api"));
            }
            Spec::Replay(run) => Arc::new(self.replay(run)?),
            Spec::Scripted(file) => Arc::new(Scripted::read(file).map_err(refused)?),
            Spec::Mailbox(folder) => {
                let letters = Mailbox::new(
                    folder,
                    samplings("mailbox", self.config.model.roles.iter().map(|(role, own)| (*role, own))),
                )
                .prefix(&self.run);
                Arc::new(letters.exit_when_waiting(self.exit_when_waiting))
            }
        })
    }

    /// The endpoint of all, and those that roles have of their own.
    fn endpoints(&self, name: &str) -> Result<Arc<dyn Llm>, Trouble> {
        let mut own: BTreeMap<Role, Arc<dyn Llm>> = BTreeMap::new();
        for (role, settings) in self.config.model.roles.iter().filter(|(_, role)| role.has_own_endpoint()) {
            let options = self.endpoint_of(*role, settings, name)?;
            own.insert(*role, Arc::new(OpenAi::new(options).map_err(refused)?));
        }
        let others: Arc<dyn Llm> = match self.endpoint(name) {
            // Perhaps nobody is left to ask it.
            Err(_) if !own.is_empty() && self.has_no_key()? => Arc::new(Keyless),
            endpoint => Arc::new(OpenAi::new(endpoint?).map_err(refused)?),
        };
        Ok(if own.is_empty() { others } else { Arc::new(PerRole::new(others, own)) })
    }

    #[cfg(feature = "batch-api")]
    fn batched(&self, name: &str) -> Result<Arc<dyn Llm>, Trouble> {
        if let Some((role, _)) = self.config.model.roles.iter().find(|(_, role)| role.has_own_endpoint()) {
            let role = role.name();
            return Err(Trouble::usage(format!(
                "openai-batch: sends all questions to one endpoint, and model.roles.{role} names its own: \
                 expected openai:{name}, or no base_url and no key there"
            )));
        }
        let window = Duration::from_secs(self.config.model.batch_window_s);
        let batching = Batching { window, ..Batching::new(self.folder.join(BATCHES)) };
        Ok(Arc::new(Batched::new(self.endpoint(name)?, batching).map_err(refused)?))
    }

    fn endpoint(&self, name: &str) -> Result<Options, Trouble> {
        let model = &self.config.model;
        if self.has_no_key()? {
            return Err(Trouble::usage(NO_KEY));
        }
        let (base_url, key) = (self.common_url(), self.environment.key_for(model)?);
        let of_all = |role: &RoleModel| !role.has_own_endpoint();
        let common = model.roles.iter().filter(|(_, role)| of_all(role)).map(|(role, own)| (*role, own));
        self.options(base_url, key, samplings(name, common))
    }

    /// What a role asks: its own endpoint with its own key or none, or the common one with its own key.
    fn endpoint_of(&self, role: Role, own: &RoleModel, name: &str) -> Result<Options, Trouble> {
        let base_url = own.own_url().map_or_else(|| self.common_url(), ToOwned::to_owned);
        let key = Environment::key_of(role, own)?;
        if key.is_none() && base_url == Options::OPENAI {
            let role = role.name();
            return Err(Trouble::usage(format!(
                "there is no key for the {role}: set model.roles.{role}.api_key or model.roles.{role}.api_key_file in \
                 warpsmith.toml; the key of [model] is not sent to an endpoint that a role names"
            )));
        }
        self.options(base_url, key, Samplings::all(sampling(name, own)))
    }

    /// Whether a key is missing for the common endpoint.
    fn has_no_key(&self) -> Result<bool, Trouble> {
        Ok(self.common_url() == Options::OPENAI && self.environment.key_for(&self.config.model)?.is_none())
    }

    fn common_url(&self) -> String {
        let named = self.environment.base_url_for(&self.config.model);
        if named.is_empty() { Options::OPENAI.to_owned() } else { named }
    }

    fn options(&self, base_url: String, key: Option<Secret>, samplings: Samplings) -> Result<Options, Trouble> {
        let model = &self.config.model;
        let key = key.map(|secret| Key::new(secret.reveal())).transpose().map_err(refused)?;
        Ok(Options {
            prices: prices(&model.prices)?,
            request_timeout: Duration::from_secs(model.request_timeout_s),
            deadline: Duration::from_secs(model.deadline_s),
            retries: model.retries,
            patience: Duration::from_secs(model.patience_s),
            in_flight: model.in_flight,
            ..Options::new(base_url, key, samplings)
        })
    }

    fn replay(&self, run: &Path) -> Result<Replay, Trouble> {
        let record = RunFolder::open(run)?.only_record()?;
        let strict = self.config.run.strict_replay;
        Ok(Replay::new(run.display().to_string(), recall::answers(&record)?, strict))
    }
}

/// What answers roles without an endpoint of their own where there is no key for the common one: that there is none.
struct Keyless;

impl Llm for Keyless {
    fn describe(&self) -> String {
        "no key for the other roles".to_owned()
    }

    fn ask(&self, _: Call) -> Answer<'_> {
        Box::pin(std::future::ready(Err(AskError::Refused(NO_KEY.to_owned()))))
    }
}

/// What these roles ask with, and all others.
fn samplings<'a>(name: &str, roles: impl Iterator<Item = (Role, &'a RoleModel)>) -> Samplings {
    let add = |all: Samplings, (role, own): (Role, &RoleModel)| all.with(role, sampling(name, own));
    roles.fold(Samplings::all(Sampling::model(name)), add)
}

fn sampling(name: &str, own: &RoleModel) -> Sampling {
    Sampling {
        model: own.model.clone().unwrap_or_else(|| name.to_owned()),
        temperature: own.temperature,
        max_completion_tokens: own.max_tokens,
        reasoning_effort: own.reasoning_effort.clone(),
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

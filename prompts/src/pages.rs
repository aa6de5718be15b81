//! How does a template become a prompt?

use crate::seed::FirstPage;
use crate::{
    catalogue::Catalogue,
    context::Context,
    documents::Documents,
    example,
    hints::Hints,
    library::{BLOCKS, PAGES, PARTS, is_page, parts},
    lookup::Lookup,
    prompt::Prompt,
    words::fenced,
};
use kernelbench::{Hash, feature::Features, pool::Pool};
use minijinja::{Environment, Error, UndefinedBehavior, Value, syntax::SyntaxConfig};
use std::{collections::BTreeMap, sync::Arc};

/// The templates of a run: the embedded ones, or a project's own in their place.
#[derive(Debug)]
pub struct Prompts {
    texts: BTreeMap<String, String>,
    environment: Environment<'static>,
    /// The embedded templates alone: they answer where a project's own breaks on a value that no check foresaw.
    embedded: Environment<'static>,
    transformations: Catalogue,
    hints: Hints,
    /// Those that come with the program where it is `None`.
    pub(crate) features: Option<Arc<Features>>,
    /// Kernels that were certified earlier, where they are shown.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Documentation of which the Coder reads pages, where there is some.
    pub(crate) documents: Option<Arc<Documents>>,
    /// What was looked up in a run that is made again, and what was shown.
    pub(crate) looked_up: Arc<BTreeMap<Lookup, String>>,
    /// The page that asks for a first candidate.
    pub(crate) first: FirstPage,
    /// What the Coder is told of the architecture in every prompt, where something is.
    pub(crate) context: Option<Context>,
}

/// Why a project's own template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no template of this name.
    #[error("there is no template {name:?}; the templates are {known}")]
    UnknownName {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The page lacks a part, or has them in another order.
    #[error(
        "template {name}: expected three parts, each behind a line of its own: `=== system ===`, `=== user ===`, \
         `=== form ===`, in this order and with nothing before them"
    )]
    Parts {
        /// The template.
        name: String,
    },
    /// It is not a template, or breaks when rendered.
    #[error("template {name}, line {line}: {message}")]
    Line {
        /// The template.
        name: String,
        /// The line in its file, from 1; 0 where it is not known.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// It names a value that its place does not have.
    #[error("template {name}: there is no value `{variable}` here; there are {known}")]
    UnknownVariable {
        /// The template.
        name: String,
        /// The value it names.
        variable: String,
        /// The values there are.
        known: String,
    },
}

impl Prompts {
    /// The embedded templates.
    ///
    /// # Panics
    /// Never: a test checks them.
    #[must_use]
    pub fn embedded() -> Self {
        let texts: BTreeMap<String, String> =
            PAGES.iter().chain(&BLOCKS).map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let environment = environment(&texts).expect("the embedded templates are tested");
        let transformations = Catalogue::embedded();
        Self {
            texts,
            embedded: environment.clone(),
            environment,
            transformations,
            hints: Hints::embedded(),
            features: None,
            pool: None,
            documents: None,
            looked_up: Arc::default(),
            first: FirstPage::default(),
            context: None,
        }
    }

    /// The embedded templates with a project's own, by name, in the place of some.
    ///
    /// # Errors
    /// Where a name is unknown, a text is no template, or a template names a value that does not exist. All are checked
    /// here, each page on several examples, so that no run fails on them later.
    pub fn with(overrides: impl IntoIterator<Item = (String, String)>) -> Result<Self, TemplateError> {
        let mut prompts = Self::embedded();
        for (name, text) in overrides {
            if !prompts.texts.contains_key(&name) {
                return Err(TemplateError::UnknownName { name, known: Self::names().collect::<Vec<_>>().join(", ") });
            }
            prompts.texts.insert(name, text);
        }
        prompts.environment = environment(&prompts.texts)?;
        prompts.check()?;
        Ok(prompts)
    }

    /// The same with this catalogue of transformations.
    #[must_use]
    pub fn transforming(self, transformations: Catalogue) -> Self {
        Self { transformations, ..self }
    }

    /// The same with these hints.
    #[must_use]
    pub fn hinting(self, hints: Hints) -> Self {
        Self { hints, ..self }
    }

    /// The hints there are.
    #[must_use]
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The transformations there are.
    #[must_use]
    pub fn transformations(&self) -> &Catalogue {
        &self.transformations
    }

    /// The names of all templates, pages first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PAGES.iter().chain(&BLOCKS).map(|(name, _)| *name)
    }

    /// A template's text, as it is in force.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// The hash of each template's text, for the record.
    #[must_use]
    pub fn hashes(&self) -> BTreeMap<String, Hash> {
        self.texts.iter().map(|(name, text)| (name.clone(), Hash::of(text.as_bytes()))).collect()
    }

    /// A page with these values.
    pub(crate) fn page(&self, page: &str, values: &Value) -> Prompt {
        let system = self.contextual(page, self.text(&format!("{page}.system"), &Value::from(())), values);
        Prompt::new(system, self.text(&format!("{page}.user"), values))
    }

    /// A template with these values, without space around it.
    pub(crate) fn text(&self, name: &str, values: &Value) -> String {
        let text = render(&self.environment, name, values).or_else(|_| render(&self.embedded, name, values));
        text.expect("the embedded templates are tested on all values that can occur")
    }

    fn check(&self) -> Result<(), TemplateError> {
        let examples = example::pages();
        self.check_variables(&examples)?;
        for (page, values) in &examples {
            for part in PARTS {
                let values = if part == "user" { values } else { &Value::from(()) };
                render(&self.environment, &format!("{page}.{part}"), values).map_err(|e| self.error(&e))?;
            }
        }
        for (block, values) in example::blocks() {
            render(&self.environment, block, &values).map_err(|e| self.error(&e))?;
        }
        Ok(())
    }

    fn check_variables(&self, examples: &[(&'static str, Value)]) -> Result<(), TemplateError> {
        let blocks = example::blocks();
        for (name, template) in self.environment.templates() {
            let places: Vec<&Value> = match name.split_once('.') {
                Some((page, "user")) => examples.iter().filter(|(p, _)| *p == page).map(|(_, v)| v).collect(),
                Some(_) => Vec::new(),
                None => examples.iter().chain(&blocks).map(|(_, values)| values).collect(),
            };
            let mut variables: Vec<String> = template.undeclared_variables(true).into_iter().collect();
            variables.sort();
            if let Some(variable) = variables.into_iter().find(|v| !places.iter().any(|values| has(values, v))) {
                let name = name.split_once('.').map_or(name, |(page, _)| page).into();
                return Err(TemplateError::UnknownVariable { name, variable, known: known(&places) });
            }
        }
        Ok(())
    }

    /// The innermost cause, with its line in the file that a person edits.
    fn error(&self, error: &Error) -> TemplateError {
        let mut innermost = error;
        let mut next = std::error::Error::source(error);
        while let Some(source) = next {
            innermost = source.downcast_ref::<Error>().unwrap_or(innermost);
            next = source.source();
        }
        let (name, before) = innermost.name().map_or(("", 0), |name| self.place(name));
        template_error(name, before, innermost)
    }

    /// The file that a part belongs to, and the lines that stand before it there.
    fn place<'a>(&self, name: &'a str) -> (&'a str, usize) {
        let Some((page, part)) = name.split_once('.') else { return (name, 0) };
        let parts = self.texts.get(page).and_then(|text| parts(text)).unwrap_or_default();
        (page, parts.iter().find(|(p, _, _)| *p == part).map_or(0, |(_, _, before)| *before))
    }
}

fn environment(texts: &BTreeMap<String, String>) -> Result<Environment<'static>, TemplateError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.add_filter("fenced", |text: &str, info: &str| fenced(text, info));
    for (name, text) in texts {
        if is_page(name) {
            for (part, text, before) in parts(text).ok_or_else(|| TemplateError::Parts { name: name.clone() })? {
                add(&mut environment, name, format!("{name}.{part}"), text, before)?;
            }
        } else {
            add(&mut environment, name, name.clone(), text.clone(), 0)?;
        }
    }
    Ok(environment)
}

fn add(
    environment: &mut Environment<'static>,
    file: &str,
    name: String,
    text: String,
    before: usize,
) -> Result<(), TemplateError> {
    environment.add_template_owned(name, text).map_err(|error| template_error(file, before, &error))
}

fn template_error(name: &str, before: usize, error: &Error) -> TemplateError {
    let line = error.line().map_or(0, |line| line + before);
    let message = error.detail().map_or_else(|| error.kind().to_string(), Into::into);
    TemplateError::Line { name: name.into(), line, message }
}

fn render(environment: &Environment<'_>, name: &str, values: &Value) -> Result<String, Error> {
    Ok(environment.get_template(name)?.render(values.clone())?.trim().to_owned())
}

/// Whether a path like `fix.why_it_matters` leads somewhere.
fn has(values: &Value, path: &str) -> bool {
    let found = path.split('.').try_fold(values.clone(), |value, key| value.get_attr(key).ok());
    found.is_some_and(|value| !value.is_undefined())
}

fn known(places: &[&Value]) -> String {
    let mut names: Vec<String> =
        places.iter().filter_map(|v| v.try_iter().ok()).flatten().map(|n| n.to_string()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() { "none: this part is the same in every round".into() } else { names.join(", ") }
}
